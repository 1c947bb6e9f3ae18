// Package bench measures what a training job would wait for, and recommends settings.
//
//	Setting -> Measure, one process per rank: a stream and a simulated step -> Rank
//	        -> Summarize over the ranks -> Summary, Verdict
//	        -> Sweep: one setting after the other -> Axis -> recommended flags
//	Report  -> text, JSON, HTML
//
// It never changes a data set. Waits are the time in Stream.Next, measured from outside; their
// causes are those that the stream records.
package bench

import (
	"cmp"
	"time"

	"github.com/shardtool/shardtool/internal/stats"
	"github.com/shardtool/shardtool/internal/units"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/order"
)

// Version is the version of the JSON of a Report.
const Version = 1

// Setting is the order and the resources of a stream, which determine its speed. All ranks of a run
// have the same one.
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
	// Units are those that positions hold, and Plans is the folder of their plans.
	Units units.Params `json:"units,omitzero"`
	Plans string       `json:"plans,omitempty"`
	// Memory (in bytes), Workers, Requests and Depth are per rank. 0 leaves them to the reader, which
	// adapts the last two unless NoAutotune.
	Memory     int64 `json:"memory"`
	Workers    int   `json:"workers"`
	Requests   int   `json:"requests"`
	Depth      int   `json:"depth,omitempty"`
	NoAutotune bool  `json:"no_autotune,omitempty"`
	// Cache is the folder, empty for none.
	Cache     string `json:"cache,omitempty"`
	CacheSize int64  `json:"cache_size,omitempty"`
}

// NewSetting returns the setting of a stream with these options.
func NewSetting(o *reader.StreamOptions) Setting {
	return Setting{
		Shuffle: o.Shuffle, Seed: o.Seed, ShuffleMemory: o.ShuffleMemory, WholeShards: o.WholeShards, Lanes: o.Lanes, RunBlocks: o.RunBlocks,
		Delay: o.Delay, Head: o.Head, Affinity: string(o.Affinity), Tail: string(cmp.Or(o.Tail, order.DefaultTail(o.Epochs))), Epoch: o.Epoch,
		GlobalBatch: o.GlobalBatch, World: o.World, Memory: o.Memory, Workers: o.Workers, Requests: o.Requests,
		Depth: o.Depth, NoAutotune: o.NoAutotune, Units: o.Units, Plans: plansOf(o),
	}
}

// plansOf is the folder of plans, where the stream has any.
func plansOf(o *reader.StreamOptions) string {
	if o.Units.Kind == "" {
		return ""
	}
	return o.Plans
}

// Options returns the options of a rank's stream, which has no end.
func (s *Setting) Options(rank int) reader.StreamOptions {
	return reader.StreamOptions{
		Order:  reader.Order{Shuffle: s.Shuffle, Seed: s.Seed, ShuffleMemory: s.ShuffleMemory, WholeShards: s.WholeShards, Lanes: s.Lanes, RunBlocks: s.RunBlocks, Delay: s.Delay, Head: s.Head, Affinity: order.Affinity(s.Affinity), Tail: order.Tail(s.Tail), Epoch: s.Epoch, GlobalBatch: s.GlobalBatch, World: s.World, Rank: rank, Units: s.Units},
		Limits: reader.Limits{Memory: s.Memory},
		Read:   reader.Read{Workers: s.Workers, Requests: s.Requests, Depth: s.Depth, NoAutotune: s.NoAutotune, Plans: s.Plans},
	}
}

// Job is the input of the process of one rank.
type Job struct {
	Setting Setting `json:"setting"`
	Rank    int     `json:"rank"`
	// Step is the time that the consumer needs for a batch. The job ends after Duration, counted from
	// the first batch on, or after Batches if that is not 0.
	Step     time.Duration `json:"step"`
	Duration time.Duration `json:"duration"`
	Batches  int           `json:"batches"`
	// Watched makes the process report its progress. Tell, when not nil, receives it as a share from 0
	// to 1: in ascending order for one rank, concurrently for several.
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

// Rank is the measurement of one rank. Times are in seconds. The first batch is reported
// separately; all other figures are for the time after it.
type Rank struct {
	Rank int `json:"rank"`
	// First is the time from the start of the process to the first batch, FirstWait the part of it in
	// Stream.Next.
	First       float64            `json:"first_batch_s"`
	FirstWait   float64            `json:"first_wait_s"`
	FirstStalls map[string]float64 `json:"first_stalls_s"`
	Elapsed     float64            `json:"elapsed_s"`
	Steps       int                `json:"steps"`
	Samples     uint64             `json:"samples"`
	Bytes       uint64             `json:"bytes"`
	Wait        float64            `json:"wait_s"`
	Step        float64            `json:"step_mean_s"` // as measured
	WaitP50     float64            `json:"wait_p50_s"`
	WaitP99     float64            `json:"wait_p99_s"`
	WaitMax     float64            `json:"wait_max_s"`
	// Share is Wait divided by Elapsed. Stalls is the wait by cause. Ready is the rest of it: the
	// batch was ready, and the call itself took time, or the process had no processor.
	Share  float64            `json:"wait_share"`
	Stalls map[string]float64 `json:"stalls_s"`
	Ready  float64            `json:"ready_s"`
	// Stored is the number of bytes read. Evicted blocks were read again.
	Stored  uint64 `json:"stored_bytes"`
	Evicted uint64 `json:"evicted_blocks"`
	// Memory is the budget in use, Held the most of it that blocks occupied, Resident the peak memory
	// of the process.
	Memory   int64 `json:"memory_budget"`
	Held     int64 `json:"held_bytes"`
	Resident int64 `json:"resident_bytes,omitempty"`
	// Requests in flight and Depth, the batches prefetched, are those at the end. Decisions counts the
	// changes of either.
	Requests  int     `json:"requests,omitempty"`
	Depth     int     `json:"depth"`
	Decisions uint64  `json:"decisions"`
	CPU       float64 `json:"cpu_s,omitempty"`
	// CacheHits are reads that the cache served, CacheMisses those that it did not.
	CacheHits   int64 `json:"cache_hits,omitempty"`
	CacheMisses int64 `json:"cache_misses,omitempty"`
	// Sources are those of a mix.
	Sources []SourceRank `json:"sources,omitempty"`
	Line    Timeline     `json:"timeline"`
}

// SourceRank is what a rank got of a source.
type SourceRank struct {
	Name    string `json:"name"`
	Samples uint64 `json:"samples"`
	Bytes   uint64 `json:"bytes"`
}

// SourceSummary is what all ranks got of a source.
type SourceSummary struct {
	Name    string  `json:"name"`
	Share   float64 `json:"share"` // of the samples
	Samples float64 `json:"samples_per_s"`
	Bytes   float64 `json:"bytes_per_s"`
}

// Summary is the measurement of all ranks of a run.
type Summary struct {
	Ranks int `json:"ranks"`
	// First is the time of the slowest rank.
	First   float64 `json:"first_batch_s"`
	Steps   int     `json:"steps"`
	Step    float64 `json:"step_mean_s"` // of the rank with the longest
	WaitP50 float64 `json:"wait_p50_s"`
	WaitP99 float64 `json:"wait_p99_s"`
	WaitMax float64 `json:"wait_max_s"`
	// Share is the mean. Worst is that of WorstRank, the rank that waits most: ranks that step
	// together all wait for it.
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
	// Requests and Depth are the maximum over the ranks at the end, Decisions the sum over all ranks.
	Requests  int    `json:"requests,omitempty"`
	Depth     int    `json:"depth,omitempty"`
	Decisions uint64 `json:"decisions,omitempty"`
	// Sources are those of a mix.
	Sources []SourceSummary `json:"sources,omitempty"`
}

// Summarize sums up one or more ranks. The p50 and p99 are the greatest of any rank.
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
		s.addSources(r)
	}
	for i := range s.Sources {
		s.Sources[i].Share /= max(samples, 1)
	}
	if elapsed > 0 {
		s.Share = wait / elapsed
	}
	if samples > 0 {
		s.CPU = cpu / samples
	}
	return s
}

// addSources adds what a rank got of each source; Share counts samples until all ranks are added.
func (s *Summary) addSources(r *Rank) {
	if s.Sources == nil && len(r.Sources) > 0 {
		s.Sources = make([]SourceSummary, len(r.Sources))
	}
	for i, of := range r.Sources[:min(len(r.Sources), len(s.Sources))] {
		to := &s.Sources[i]
		to.Name = of.Name
		to.Share += float64(of.Samples)
		if r.Elapsed > 0 {
			to.Samples += float64(of.Samples) / r.Elapsed
			to.Bytes += float64(of.Bytes) / r.Elapsed
		}
	}
}

// Causes returns the names of the causes, in their order.
func Causes() (names []string) {
	for name := range (stats.Stalls{}).All() {
		names = append(names, name)
	}
	return names
}

func seconds(s stats.Stalls) map[string]float64 {
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
