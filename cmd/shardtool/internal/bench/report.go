package bench

import (
	"fmt"
	"strings"
	"time"

	"github.com/shardtool/shardtool/reader"
)

// Data is the data set that was read. Remote reports that each request takes time, and Requests is
// how many the store sends concurrently. CacheUsed is the size of the cache's content before the
// run, of all data sets.
type Data struct {
	Address    string `json:"address"` // of a mix, the file
	Remote     bool   `json:"remote"`
	Requests   int    `json:"requests,omitempty"`
	Generation uint64 `json:"generation"`
	Digest     string `json:"digest"`
	Samples    uint64 `json:"samples"`
	Shards     int    `json:"shards"`
	Blocks     uint64 `json:"blocks"`
	Bytes      uint64 `json:"bytes"`
	Decoded    uint64 `json:"decoded_bytes"`
	CacheUsed  int64  `json:"cache_used_bytes,omitempty"`
	// Of a mix. Address is then the file, and Digest the digest of their digests.
	Sources []SourceData `json:"sources,omitempty"`
}

// SourceData is the data set of a source.
type SourceData struct {
	Name       string `json:"name"`
	Address    string `json:"address"`
	Generation uint64 `json:"generation"`
	Digest     string `json:"digest"`
	Samples    uint64 `json:"samples"`
	Bytes      uint64 `json:"bytes"`
}

// Report is the result of a run.
type Report struct {
	Version int       `json:"version"` // of this JSON, 1
	Time    time.Time `json:"time"`
	Tool    string    `json:"tool"` // version of shardtool
	Host    Host      `json:"host"`
	Data    Data      `json:"data_set"`
	// What the program chooses is absent or 0.
	Setting Setting `json:"setting"`

	StepSeconds float64 `json:"step_s"` // the simulated step. 0 means no step.
	// Of waits and use the greatest of any rank, but the mean `wait_share`, and sums of `stalls_s`,
	// `ready_s`, `evicted_blocks` and `decisions`.
	Summary Summary `json:"summary"`
	Verdict Verdict `json:"verdict"`
	Ranks   []Rank  `json:"ranks"`

	Balance *reader.Balance `json:"balance,omitempty"`
}

// Finish computes the summary and the verdict from the measurements.
func (r *Report) Finish() {
	r.Summary = Summarize(r.Ranks)
	r.Verdict = Judge(&r.Summary, r.StepSeconds)
	if r.Setting.Resources.Cache != "" { // already in use
		r.Verdict.Text = strings.ReplaceAll(r.Verdict.Text, ", or use --cache", "")
	}
}

// Verdict names what limits training. Holds is step, storage, cache, processors, memory, window,
// map or order. Cause is the greatest of the stalls, and CauseShare its share of the wait.
type Verdict struct {
	Holds      string  `json:"holds_back"` // the step or a cause
	Cause      string  `json:"cause,omitempty"`
	CauseShare float64 `json:"cause_share,omitempty"`
	Text       string  `json:"text"`
}

// Enough is the share of waiting up to which the step is considered the limit.
const Enough = 0.01

// holds maps a cause to the part of the system at fault and to what to do first.
var holds = map[string][2]string{
	"request":   {"storage", "the store gives no more: read further ahead (--memory), keep more requests in flight, or use --cache"},
	"throttled": {"storage", "the store asks for less load: fewer processes at once, more prefixes, or --cache"},
	"cache":     {"cache", "the cache's disk is the slowest part: take a faster one, or none"},
	"window":    {"window", "the shuffle window is being filled: measure longer than that takes, or make it smaller (--shuffle-memory, --head)"},
	"decode":    {"processors", "checking and decoding need more processors: --workers, or more CPUs"},
	"memory":    {"memory", "the budget is full: raise --memory, or make the shuffle window smaller"},
	"order":     {"order", "planning and assembling take the time: larger samples or smaller batches, and a processor that is free"},
	"map":       {"map", "the map function takes the time"},
}

// Judge determines what limits a job.
func Judge(s *Summary, step float64) Verdict {
	total := 0.0
	cause := ""
	for _, name := range Causes() {
		total += s.Waits.Stalls[name]
		if cause == "" || s.Waits.Stalls[name] > s.Waits.Stalls[cause] {
			cause = name
		}
	}
	v := Verdict{Holds: "step"}
	if total > 0 {
		v.Cause, v.CauseShare = cause, s.Waits.Stalls[cause]/total
	}
	switch {
	case step > 0 && s.Rates.Worst <= Enough:
		v.Text = fmt.Sprintf("the step holds training back, not the data: training waits %s of the time",
			percent(s.Rates.Worst))
	case total == 0:
		v.Text = "nothing was waited for"
	case s.Waits.Ready > total:
		v.Holds = "processors"
		v.Text = fmt.Sprintf("training waits %s of the time, though the batches were there: the host gives the process no processor when it needs one, or the step is too short to measure", percent(s.Rates.Worst))
	default:
		v.Holds = holds[cause][0]
		waited := fmt.Sprintf("training waits %s of the time", percent(s.Rates.Worst))
		if step == 0 {
			waited = fmt.Sprintf("without a step it reaches %s samples/s", number(s.Rates.Samples))
		}
		v.Text = fmt.Sprintf("%s; %s of the wait is %s: %s", waited, percent(v.CauseShare), cause, holds[cause][1])
	}
	return v
}
