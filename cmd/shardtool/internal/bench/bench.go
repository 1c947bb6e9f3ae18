// Package bench measures what a training job would wait for, and says what to change.
//
//	Setting -> Measure, one process a rank: a stream and a simulated step -> Rank
//	        -> Summarize over the ranks -> Summary, Verdict
//	        -> Sweep: settings in turn -> Axis -> Advice
//	Report  -> text, JSON, HTML
//
// Nothing here changes a data set. What is measured is the time in Stream.Next, from outside; the causes come from the stream's own
// account.
package bench

import (
	"time"

	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/order"
)

// Version is that of the JSON of a Report.
const Version = 1

// Setting is what decides how fast a stream can be. It is the same for all ranks of a run.
type Setting struct {
	Shuffle       bool   `json:"shuffle"`
	Seed          uint64 `json:"seed"`
	ShuffleMemory uint64 `json:"shuffle_memory"`
	WholeShards   bool   `json:"whole_shards,omitempty"`
	Lanes         uint32 `json:"lanes,omitempty"`
	RunBlocks     uint32 `json:"run_blocks,omitempty"`
	Delay         uint32 `json:"delay,omitempty"`
	Head          uint32 `json:"head,omitempty"`
	Affinity      string `json:"affinity"`
	Tail          string `json:"tail"`
	Epoch         uint64 `json:"epoch"`
	GlobalBatch   int    `json:"global_batch"`
	World         int    `json:"world_size"`
	// Memory is in bytes, Workers, Requests and Depth are per rank; 0 leaves them to the reader, which changes the last two as it goes
	// unless NoAutotune.
	Memory     int64 `json:"memory"`
	Workers    int   `json:"workers"`
	Requests   int   `json:"requests"`
	Depth      int   `json:"depth,omitempty"`
	NoAutotune bool  `json:"no_autotune,omitempty"`
	// Cache is the folder, empty for none.
	Cache     string `json:"cache,omitempty"`
	CacheSize int64  `json:"cache_size,omitempty"`
}

// Options are those of a rank's stream. It has no end: how long it is measured is said elsewhere.
func (s *Setting) Options(rank int) reader.StreamOptions {
	return reader.StreamOptions{
		Order:  reader.Order{Shuffle: s.Shuffle, Seed: s.Seed, ShuffleMemory: s.ShuffleMemory, WholeShards: s.WholeShards, Lanes: s.Lanes, RunBlocks: s.RunBlocks, Delay: s.Delay, Head: s.Head, Affinity: order.Affinity(s.Affinity), Tail: order.Tail(s.Tail), Epoch: s.Epoch, GlobalBatch: s.GlobalBatch, World: s.World, Rank: rank},
		Limits: reader.Limits{Memory: s.Memory},
		Read:   reader.Read{Workers: s.Workers, Requests: s.Requests, Depth: s.Depth, NoAutotune: s.NoAutotune},
	}
}

// Job is what the process of one rank is told.
type Job struct {
	Setting Setting `json:"setting"`
	Rank    int     `json:"rank"`
	// Step is how long the consumer is busy with a batch. It ends behind Duration, counted from the first batch on, or behind Batches
	// if that is not 0.
	Step     time.Duration `json:"step"`
	Duration time.Duration `json:"duration"`
	Batches  int           `json:"batches"`
	// Watched has the process report how far it is, and Tell, when not nil, gets the shares from 0
	// to 1, of a rank in ascending order, of several ranks concurrently.
	Watched bool                          `json:"watched,omitempty"`
	Tell    func(rank int, share float64) `json:"-"`
}

// done is the share of the job that a rank has completed.
func (j *Job) done(batches uint64, elapsed time.Duration) float64 {
	if j.Batches > 0 {
		return min(float64(batches)/float64(j.Batches), 1)
	}
	return min(elapsed.Seconds()/j.Duration.Seconds(), 1)
}

// Rank is what was measured of one rank. Times are in seconds. What comes with the first batch is apart; all else is after it.
type Rank struct {
	Rank int `json:"rank"`
	// First is the time from the start of the process to the first batch; FirstWait the part of it that Next took.
	First       float64            `json:"first_batch_s"`
	FirstWait   float64            `json:"first_wait_s"`
	FirstStalls map[string]float64 `json:"first_stalls_s"`
	Elapsed     float64            `json:"elapsed_s"`
	Steps       int                `json:"steps"`
	Samples     uint64             `json:"samples"`
	Bytes       uint64             `json:"bytes"`
	Wait        float64            `json:"wait_s"`
	Step        float64            `json:"step_mean_s"` // as it was
	WaitP50     float64            `json:"wait_p50_s"`
	WaitP99     float64            `json:"wait_p99_s"`
	WaitMax     float64            `json:"wait_max_s"`
	// Share of the time that was waited. Stalls is the wait by its causes; Ready is what is left of it: the batch was there, and the
	// call took its time, or the process had no processor to take it.
	Share  float64            `json:"wait_share"`
	Stalls map[string]float64 `json:"stalls_s"`
	Ready  float64            `json:"ready_s"`
	// Stored bytes were read; blocks that were Evicted were read again.
	Stored  uint64 `json:"stored_bytes"`
	Evicted uint64 `json:"evicted_blocks"`
	// Memory is the budget in use, Held the most of it that blocks took, Resident the most that the process took.
	Memory   int64 `json:"memory_budget"`
	Held     int64 `json:"held_bytes"`
	Resident int64 `json:"resident_bytes,omitempty"`
	// Requests in flight and Depth, the batches ahead, are as they were in the end, after so many Decisions to change one of them.
	Requests  int     `json:"requests,omitempty"`
	Depth     int     `json:"depth"`
	Decisions uint64  `json:"decisions"`
	CPU       float64 `json:"cpu_s,omitempty"`
	// CacheHits and CacheMisses are reads that the cache served and did not.
	CacheHits   int64    `json:"cache_hits,omitempty"`
	CacheMisses int64    `json:"cache_misses,omitempty"`
	Line        Timeline `json:"timeline"`
}

// Summary is what was measured of all ranks of a run.
type Summary struct {
	Ranks int `json:"ranks"`
	// First is that of the slowest rank.
	First   float64 `json:"first_batch_s"`
	Steps   int     `json:"steps"`
	Step    float64 `json:"step_mean_s"` // of the rank whose is the longest
	WaitP50 float64 `json:"wait_p50_s"`
	WaitP99 float64 `json:"wait_p99_s"`
	WaitMax float64 `json:"wait_max_s"`
	// Share is the mean, Worst that of the rank WorstRank, which waits most: ranks that step together all wait for it.
	Share     float64            `json:"wait_share"`
	Worst     float64            `json:"worst_wait_share"`
	WorstRank int                `json:"worst_rank"`
	Samples   float64            `json:"samples_per_s"`
	Bytes     float64            `json:"bytes_per_s"`
	Stored    float64            `json:"stored_bytes_per_s"`
	Stalls    map[string]float64 `json:"stalls_s"`
	Ready     float64            `json:"ready_s"`
	CPU       float64            `json:"cpu_per_sample_s,omitempty"`
	Resident  int64              `json:"resident_bytes,omitempty"` // of the largest rank
	Memory    int64              `json:"memory_budget"`            // of a rank
	Evicted   uint64             `json:"evicted_blocks,omitempty"`
	// Requests and Depth are the most that a rank had in the end, Decisions those of all ranks.
	Requests  int    `json:"requests,omitempty"`
	Depth     int    `json:"depth,omitempty"`
	Decisions uint64 `json:"decisions,omitempty"`
}

// Summarize sums ranks up; there is at least one. The p50 and p99 are those of the rank whose are the greatest.
func Summarize(ranks []Rank) Summary {
	s := Summary{Ranks: len(ranks), Worst: -1, Stalls: map[string]float64{}}
	wait, elapsed, cpu, samples := 0.0, 0.0, 0.0, 0.0
	for i := range ranks {
		r := &ranks[i]
		s.First, s.WaitP50, s.WaitP99, s.WaitMax = max(s.First, r.First), max(s.WaitP50, r.WaitP50), max(s.WaitP99, r.WaitP99), max(s.WaitMax, r.WaitMax)
		s.Steps += r.Steps
		s.Step = max(s.Step, r.Step)
		s.Resident, s.Memory = max(s.Resident, r.Resident), max(s.Memory, r.Memory)
		s.Evicted += r.Evicted
		s.Requests, s.Depth, s.Decisions = max(s.Requests, r.Requests), max(s.Depth, r.Depth), s.Decisions+r.Decisions
		s.Ready += r.Ready
		wait, elapsed, cpu, samples = wait+r.Wait, elapsed+r.Elapsed, cpu+r.CPU, samples+float64(r.Samples)
		if r.Share > s.Worst {
			s.Worst, s.WorstRank = r.Share, r.Rank
		}
		if r.Elapsed > 0 {
			s.Samples += float64(r.Samples) / r.Elapsed
			s.Bytes += float64(r.Bytes) / r.Elapsed
			s.Stored += float64(r.Stored) / r.Elapsed
		}
		for cause, d := range r.Stalls {
			s.Stalls[cause] += d
		}
	}
	if elapsed > 0 {
		s.Share = wait / elapsed
	}
	if samples > 0 {
		s.CPU = cpu / samples
	}
	return s
}

// Causes are the names of causes, in their order.
func Causes() (names []string) {
	for name := range (reader.Stalls{}).All() {
		names = append(names, name)
	}
	return names
}

func seconds(s reader.Stalls) map[string]float64 {
	out := map[string]float64{}
	for name, d := range s.All() {
		out[name] = d.Seconds()
	}
	return out
}

func (r *Rank) waits(w *waitCounts) {
	r.Steps = int(w.n)
	r.WaitP50, r.WaitP99, r.WaitMax, r.Wait = w.quantile(0.5), w.quantile(0.99), w.most, w.sum
	r.Ready = r.Wait
	for _, d := range r.Stalls {
		r.Ready -= d
	}
	r.Ready = max(r.Ready, 0)
	if r.Elapsed > 0 {
		r.Share = r.Wait / r.Elapsed
	}
}
