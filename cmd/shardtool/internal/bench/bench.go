// Package bench measures what a training job would wait for, and why.
//
//	Setting -> Measure, one process per rank: a stream and a simulated step -> Rank
//	        -> Summarize over the ranks -> Summary, Verdict
//	Report  -> JSON; tables -> text, HTML
//
// It never changes a data set. Waits are the time in Stream.Next, measured from outside. The stream
// records their causes.
package bench

import (
	"cmp"
	"encoding/json"
	"time"

	"github.com/shardtool/shardtool/internal/figures/stats"
	"github.com/shardtool/shardtool/internal/order/units"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/order"
)

// Version is the version of the JSON of a Report.
const Version = 1

// Setting is the order and the resources of a stream, which determine its speed. All ranks of a run
// have the same one. In JSON it is one object.
type Setting struct {
	Order     Order
	Resources Resources
}

// Order is the order of samples. Cost, CostGroup and MicroBatches are as in reader.StreamOptions.
// Plans is the folder of the plans of Units.
type Order struct {
	Shuffle       bool   `json:"shuffle"`
	Seed          uint64 `json:"seed"`
	ShuffleMemory uint64 `json:"shuffle_memory"`
	Host          bool   `json:"host,omitempty"`
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
	Cost          string `json:"cost,omitempty"`
	CostGroup     int    `json:"cost_group,omitempty"`
	MicroBatches  int    `json:"micro_batches,omitempty"`

	Units units.Params `json:"units,omitzero"` // samples are then their items
	Plans string       `json:"plans,omitempty"`
}

// Resources are the resources of one rank. Memory is in bytes; a value of 0 is chosen by the
// reader, which also adapts Requests and Depth, unless NoAutotune. Cache is the folder, empty for
// none.
type Resources struct {
	Memory     int64 `json:"memory"`
	Workers    int   `json:"workers"`
	Requests   int   `json:"requests"`
	Depth      int   `json:"depth,omitempty"`
	NoAutotune bool  `json:"no_autotune,omitempty"`

	Cache     string `json:"cache,omitempty"`
	CacheSize int64  `json:"cache_size,omitempty"`
}

// MarshalJSON encodes s as one object.
func (s Setting) MarshalJSON() ([]byte, error) { return join(s.Order, s.Resources) }

// UnmarshalJSON decodes what MarshalJSON encodes.
func (s *Setting) UnmarshalJSON(text []byte) error { return split(text, &s.Order, &s.Resources) }

// join encodes structs as one object with the members of all.
func join(parts ...any) ([]byte, error) {
	object := []byte{'{'}
	for _, part := range parts {
		text, err := json.Marshal(part)
		if err != nil {
			return nil, err
		}
		object = append(append(object, text[1:len(text)-1]...), ',')
	}
	object[len(object)-1] = '}'
	return object, nil
}

// split decodes an object into structs that have a part of its members each.
func split(text []byte, parts ...any) error {
	for _, part := range parts {
		if err := json.Unmarshal(text, part); err != nil {
			return err
		}
	}
	return nil
}

// NewSetting returns the setting of a stream with these options.
func NewSetting(o *reader.StreamOptions) Setting {
	s := Setting{
		Order{
			Shuffle: o.Shuffle, Seed: o.Seed, ShuffleMemory: o.Order.ShuffleMemory, Host: o.Order.Host, WholeShards: o.Order.WholeShards,
			Lanes: o.Order.Lanes, RunBlocks: o.Order.RunBlocks,
			Delay: o.Order.Delay, Head: o.Order.Head, Affinity: string(o.Order.Affinity),
			Tail: string(cmp.Or(o.Tail, order.DefaultTail(o.Epochs))), Epoch: o.Epoch,
			GlobalBatch: o.GlobalBatch, World: o.World, Cost: o.Cost, CostGroup: o.CostGroup,
			MicroBatches: o.MicroBatches, Units: o.Units,
		},
		Resources{Memory: o.Tuning.Memory, Workers: o.Tuning.Workers, Requests: o.Tuning.Requests,
			Depth: o.Tuning.Depth, NoAutotune: o.Tuning.NoAutotune},
	}
	if o.Units.Kind != "" {
		s.Order.Plans = o.Tuning.Plans
	}
	return s
}

// Options returns the options of a rank's stream, which has no end.
func (s *Setting) Options(rank int) reader.StreamOptions {
	o, r := &s.Order, &s.Resources
	return reader.StreamOptions{
		Shuffle: o.Shuffle, Seed: o.Seed, Tail: order.Tail(o.Tail), Epoch: o.Epoch, GlobalBatch: o.GlobalBatch,
		World: o.World, Rank: rank, Cost: o.Cost, CostGroup: o.CostGroup, MicroBatches: o.MicroBatches, Units: o.Units,
		Order: reader.OrderOptions{ShuffleMemory: o.ShuffleMemory, Host: o.Host, WholeShards: o.WholeShards, Lanes: o.Lanes,
			RunBlocks: o.RunBlocks, Delay: o.Delay, Head: o.Head, Affinity: order.Affinity(o.Affinity)},
		Tuning: reader.Tuning{Memory: r.Memory, Workers: r.Workers, Requests: r.Requests, Depth: r.Depth,
			NoAutotune: r.NoAutotune, Plans: o.Plans},
	}
}

// Read is what the ranks read, as commands take it. It is no argument of their processes: an
// address may hold secrets, and all users of a machine see arguments.
type Read struct {
	Address string   `json:"address"`
	Layers  []string `json:"layers"`
	Fields  []string `json:"fields"`
	Where   []string `json:"where"`
	Keys    string   `json:"keys"` // file
}

// Job is the input of the process of one rank.
type Job struct {
	Read    Read    `json:"read"`
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
// separately; all other figures are for the time after it. In JSON it is one object.
type Rank struct {
	Work  Work
	Waits Waits
	Use   Use
}

// Work is what a rank did. First is the time from the start of the process to the first batch, and
// FirstWait the part of it in Stream.Next. Stored are the bytes read, and Held is most of the
// budget that blocks occupied. CacheHits are the reads that the cache served, CacheMisses the
// others.
type Work struct {
	Rank        int                `json:"rank"`
	First       float64            `json:"first_batch_s"`
	FirstWait   float64            `json:"first_wait_s"`
	FirstStalls map[string]float64 `json:"first_stalls_s"`
	Elapsed     float64            `json:"elapsed_s"`
	Steps       int                `json:"steps"`
	Samples     uint64             `json:"samples"`
	Bytes       uint64             `json:"bytes"`
	Stored      uint64             `json:"stored_bytes"`
	Wait        float64            `json:"wait_s"`
	Held        int64              `json:"held_bytes"`
	CPU         float64            `json:"cpu_s,omitempty"`
	CacheHits   int64              `json:"cache_hits,omitempty"`
	CacheMisses int64              `json:"cache_misses,omitempty"`
	Sources     []SourceRank       `json:"sources,omitempty"` // of a mix
}

// Waits are the waits of the steps after the first batch. Step is as measured, and Share is the
// share of the time that was waited. Ready is the rest of the Stalls: the batch was ready, and the
// call itself took time, or the process had no processor.
type Waits struct {
	Step   float64            `json:"step_mean_s"`
	P50    float64            `json:"wait_p50_s"`
	P99    float64            `json:"wait_p99_s"`
	Max    float64            `json:"wait_max_s"`
	Share  float64            `json:"wait_share"`
	Stalls map[string]float64 `json:"stalls_s"` // the wait [by cause](stalls.md#the-causes)
	Ready  float64            `json:"ready_s"`  // the rest of it
}

// Use is what a rank used. Memory is the budget in use, and Resident the peak memory of the
// process. Evicted blocks were read again. Requests in flight and Depth, the batches prefetched,
// are the values at the end, and Decisions counts the changes of either.
type Use struct {
	Memory   int64  `json:"memory_budget"`
	Resident int64  `json:"resident_bytes,omitempty"`
	Evicted  uint64 `json:"evicted_blocks"`
	// What autotuning reached.
	Requests  int    `json:"requests,omitempty"`
	Depth     int    `json:"depth"`
	Decisions uint64 `json:"decisions"`
}

// MarshalJSON encodes r as one object.
func (r Rank) MarshalJSON() ([]byte, error) { return join(r.Work, r.Waits, r.Use) }

// UnmarshalJSON decodes what MarshalJSON encodes.
func (r *Rank) UnmarshalJSON(text []byte) error { return split(text, &r.Work, &r.Waits, &r.Use) }

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

// Summary is the measurement of all ranks of a run. Waits and Use have the greatest value of any
// rank, but Share is the mean, and Stalls, Ready, Evicted and Decisions are sums. In JSON it is one
// object.
type Summary struct {
	Rates Rates
	Waits Waits
	Use   Use
}

// Rates has the figures of all ranks together.
type Rates struct {
	Ranks int     `json:"ranks"`
	First float64 `json:"first_batch_s"` // of the slowest rank
	Steps int     `json:"steps"`
	// The rank that waits most. Ranks that step together all wait for it.
	Worst     float64 `json:"worst_wait_share"`
	WorstRank int     `json:"worst_rank"`
	// Of all ranks.
	Samples float64 `json:"samples_per_s"`
	Bytes   float64 `json:"bytes_per_s"`
	Stored  float64 `json:"stored_bytes_per_s"`
	CPU     float64 `json:"cpu_per_sample_s,omitempty"`

	Sources []SourceSummary `json:"sources,omitempty"` // of a mix
}

// MarshalJSON encodes s as one object.
func (s Summary) MarshalJSON() ([]byte, error) { return join(s.Rates, s.Waits, s.Use) }

// UnmarshalJSON decodes what MarshalJSON encodes.
func (s *Summary) UnmarshalJSON(text []byte) error { return split(text, &s.Rates, &s.Waits, &s.Use) }

// Summarize sums up one or more ranks.
func Summarize(ranks []Rank) Summary {
	s := Summary{Rates{Ranks: len(ranks), Worst: -1}, Waits{Stalls: map[string]float64{}}, Use{}}
	wait, elapsed, cpu, samples := 0.0, 0.0, 0.0, 0.0
	for i := range ranks {
		r, rates := &ranks[i].Work, &s.Rates
		rates.First = max(rates.First, r.First)
		rates.Steps += r.Steps
		wait, elapsed, cpu, samples = wait+r.Wait, elapsed+r.Elapsed, cpu+r.CPU, samples+float64(r.Samples)
		if share := ranks[i].Waits.Share; share > rates.Worst {
			rates.Worst, rates.WorstRank = share, r.Rank
		}
		if r.Elapsed > 0 {
			rates.Samples += float64(r.Samples) / r.Elapsed
			rates.Bytes += float64(r.Bytes) / r.Elapsed
			rates.Stored += float64(r.Stored) / r.Elapsed
		}
		rates.addSources(r)
		s.Waits.add(&ranks[i].Waits)
		s.Use.add(&ranks[i].Use)
	}
	for i := range s.Rates.Sources {
		s.Rates.Sources[i].Share /= max(samples, 1)
	}
	if elapsed > 0 {
		s.Waits.Share = wait / elapsed
	}
	if samples > 0 {
		s.Rates.CPU = cpu / samples
	}
	return s
}

func (w *Waits) add(of *Waits) {
	w.Step, w.P50, w.P99, w.Max = max(w.Step, of.Step), max(w.P50, of.P50), max(w.P99, of.P99), max(w.Max, of.Max)
	w.Ready += of.Ready
	for cause, d := range of.Stalls {
		w.Stalls[cause] += d
	}
}

func (u *Use) add(of *Use) {
	u.Memory, u.Resident, u.Evicted = max(u.Memory, of.Memory), max(u.Resident, of.Resident), u.Evicted+of.Evicted
	u.Requests, u.Depth, u.Decisions = max(u.Requests, of.Requests), max(u.Depth, of.Depth), u.Decisions+of.Decisions
}

// addSources adds what a rank got of each source; Share counts samples until all ranks are added.
func (s *Rates) addSources(r *Work) {
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

// count completes the figures of the waits from their distribution, the stalls and the elapsed
// time.
func (r *Rank) count(w *waitCounts) {
	did, waits := &r.Work, &r.Waits
	did.Steps, did.Wait = int(w.n), w.sum
	waits.P50, waits.P99, waits.Max = w.quantile(0.5), w.quantile(0.99), w.most
	waits.Ready = did.Wait
	for _, d := range waits.Stalls {
		waits.Ready -= d
	}
	waits.Ready = max(waits.Ready, 0)
	if did.Elapsed > 0 {
		waits.Share = did.Wait / did.Elapsed
	}
}
