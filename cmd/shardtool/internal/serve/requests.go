package serve

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/order/units"
	"github.com/shardtool/shardtool/internal/sys/plain"
	"github.com/shardtool/shardtool/reader/ranks"
)

// OpenRequest is the body of OPEN.
type OpenRequest struct {
	// Address is a DATASET of the command line, or a mix file.
	Address string `json:"address"`
	// Mix, when not empty, is the text of a mix file, in place of an address. Relative paths in it, or
	// in the mix file at the address, are relative to Directory.
	Mix       string `json:"mix"`
	Directory string `json:"directory"`
	// ChangeMix allows the mix to differ from the checkpoint's mix.
	ChangeMix bool `json:"change_mix"`
	// Where is an expression that chooses samples, and Keys a file with the keys of the samples to
	// choose from.
	Where string `json:"where"`
	Keys  string `json:"keys"`
	// Layers are the names or addresses of layers of the data set. Fields, when not empty, are the
	// fields that are read. LayerTables are the tables of the layers that a state has, by source and
	// layer: these generations are opened, or the current ones where they are gone.
	Layers      []string                     `json:"layers"`
	Fields      []string                     `json:"fields"`
	LayerTables map[string]map[string]string `json:"layer_tables"`
	// Checkpoint, when not empty, names the generation to open.
	Checkpoint string `json:"checkpoint"`
	// Cache is a folder, and CacheSize its bound in bytes; 0 is the default.
	Cache     string `json:"cache"`
	CacheSize int64  `json:"cache_size"`
	// Memory, in bytes, and Workers are as in reader.Options.
	Memory  int64 `json:"memory"`
	Workers int   `json:"workers"`
	// LocalRanks is how many processes share this host's CPUs.
	LocalRanks int `json:"local_ranks"`
	// Environment has the variables that tell which rank the program is, where it is not the one that
	// started the server; nil: those of the server.
	Environment map[string]string `json:"environment"`
}

// Getenv returns a variable of the program's environment.
func (q *OpenRequest) Getenv(name string) string {
	if q.Environment != nil {
		return q.Environment[name]
	}
	return os.Getenv(name)
}

// StartRequest is the body of START. In JSON the members of its groups are members of the body.
type StartRequest struct {
	Columns []Column
	// Units makes positions hold units. If it is nil and there is a checkpoint, the checkpoint's units
	// are used.
	Units  *UnitRequest
	Order  OrderRequest
	Resume ResumeRequest
	Faults FaultRequest
	Tuning TuningRequest
}

// UnmarshalJSON reads the members that are given, and leaves the others.
func (q *StartRequest) UnmarshalJSON(text []byte) error {
	return strict(text, &struct {
		Columns *[]Column     `json:"columns"`
		Units   **UnitRequest `json:"units"`
		*OrderRequest
		*ResumeRequest
		*FaultRequest
		*TuningRequest
	}{&q.Columns, &q.Units, &q.Order, &q.Resume, &q.Faults, &q.Tuning})
}

// OrderRequest chooses the order of START. Members that are nil were not given.
type OrderRequest struct {
	Shuffle       *bool   `json:"shuffle"`
	Seed          *uint64 `json:"seed"`
	Epoch         *uint64 `json:"epoch"`
	Epochs        *uint64 `json:"epochs"`
	GlobalBatch   *int    `json:"global_batch"`
	BatchSize     *int    `json:"batch_size"`
	Rank          *int    `json:"rank"`
	WorldSize     *int    `json:"world_size"`
	ShuffleMemory *uint64 `json:"shuffle_memory"`
	WholeShards   *bool   `json:"whole_shards"`
	// Host tells that the ranks of a host share what they hold, whether they do or not.
	Host      bool    `json:"host"`
	Lanes     *uint32 `json:"lanes"`
	RunBlocks *uint32 `json:"run_blocks"`
	Delay     *uint32 `json:"delay"`
	Head      *uint32 `json:"head"`
	Affinity  *string `json:"affinity"`
	Tail      *string `json:"tail"`
	// Cost, CostGroup and MicroBatches are as in reader.StreamOptions.
	Cost         string `json:"cost"`
	CostGroup    int    `json:"cost_group"`
	MicroBatches int    `json:"micro_batches"`
	// Shards are the numbers of the first shard to read and after the last; null reads all.
	Shards [2]int `json:"shards"`
}

// ResumeRequest is where START continues, and how the run may differ from the one before.
type ResumeRequest struct {
	// Checkpoint and Ledger are their texts. Begin moves the checkpoint's place to the beginning of an
	// epoch.
	Checkpoint string  `json:"checkpoint"`
	Ledger     string  `json:"ledger"`
	Begin      *uint64 `json:"begin"`
	// ChangeMix allows the mix to differ from the checkpoint's mix. SkipSteps are the first and the
	// last of the steps to leave out of a mix.
	ChangeMix bool       `json:"change_mix"`
	SkipSteps *[2]uint64 `json:"skip_steps"`
	// Weights, when not nil, are weights that the program sets, by the names of the sources of a mix.
	// They hold from where START continues.
	Weights map[string]float64 `json:"weights"`
}

// same reports whether another START asks for the same, wherever it begins. The tail is given only
// without a checkpoint.
func (q *StartRequest) same(other *StartRequest) bool {
	one, two := *q, *other
	one.Resume, two.Resume = ResumeRequest{SkipSteps: one.Resume.SkipSteps},
		ResumeRequest{SkipSteps: two.Resume.SkipSteps}
	one.Order.Tail, two.Order.Tail = nil, nil
	return reflect.DeepEqual(one, two)
}

// FaultRequest says what becomes of damaged data.
type FaultRequest struct {
	OnError         string  `json:"on_error"`
	MaxSkipped      uint64  `json:"max_skipped"`
	MaxSkippedShare float64 `json:"max_skipped_share"`
}

// TuningRequest is how a run reads and delivers.
type TuningRequest struct {
	Memory  int64 `json:"memory"`
	Workers int   `json:"workers"`
	// Requests, Depth and Autotune have the meaning of the flags; Autotune nil is true.
	Requests int   `json:"requests"`
	Depth    int   `json:"depth"`
	Autotune *bool `json:"autotune"`
	// Prefetch is how many batches are made ahead of the one asked for; nil lets their size decide.
	// Ring bounds all segments, in bytes; 0 is 1 GiB.
	Prefetch *int  `json:"prefetch"`
	Ring     int64 `json:"ring"`
}

// Column is one field that is wanted, and what it is decoded to.
type Column struct {
	Name   string `json:"name"`
	Decode string `json:"decode"`
	// Optional allows samples without the field; otherwise such a sample is an error.
	Optional bool `json:"optional"`
	// Dtype, ItemSize, in bytes, and Shape describe an array. Dtype is the parent's own word.
	Dtype    string `json:"dtype"`
	ItemSize int    `json:"item_size"`
	Shape    []int  `json:"shape"`

	row int // bytes of an array; -1 where the shape leaves it open
}

// decodeBody reads a JSON body. It refuses members that this version does not know, because the
// parent relies on them.
func decodeBody(body []byte, into any) error {
	if err := strict(body, into); err != nil {
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok { // not in terms of Go
			name := wrong.Field[strings.LastIndexByte(wrong.Field, '.')+1:]
			return configf("%s: the %s is out of range or of another type%w", name, wrong.Value, plain.Silent(err))
		}
		return configf("the request: %w", err)
	}
	return nil
}

// strict decodes one JSON value without members that are not known.
func strict(text []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one JSON value")
	}
	return nil
}

// check validates members that no option of the reader validates.
func (q *StartRequest) check() error {
	t, o := &q.Tuning, &q.Order
	if t.Ring == 0 {
		t.Ring = 1 << 30
	}
	switch {
	case t.Prefetch != nil && (*t.Prefetch < 0 || *t.Prefetch > maxPrefetch):
		return configf("prefetch %d: give 0 to %d batches", *t.Prefetch, maxPrefetch)
	case t.Ring < minRing:
		return configf("ring_memory of %d bytes: give at least %d", t.Ring, minRing)
	case o.BatchSize != nil && o.GlobalBatch != nil:
		return configf("batch_size and global_batch: give one of them")
	case o.BatchSize != nil && *o.BatchSize < 1:
		return configf("batch_size %d: a batch has at least 1 sample", *o.BatchSize)
	}
	seen := map[string]bool{}
	for i := range q.Columns {
		c := &q.Columns[i]
		if seen[c.Name] {
			return configf("field %q is asked for twice", c.Name)
		}
		seen[c.Name] = true
		if err := c.check(); err != nil {
			return configf("field %q: %w", c.Name, err)
		}
	}
	return nil
}

// maxPrefetch keeps BATCH frames from filling the socket while nobody reads; minRing is a batch of
// small samples.
const maxPrefetch, minRing = 64, 64 << 10

func (c *Column) check() error {
	switch c.Decode {
	case "bytes", "npy":
		return nil
	case "int":
		c.Dtype, c.ItemSize, c.Shape = "<i8", 8, []int{}
	case "float":
		c.Dtype, c.ItemSize, c.Shape = "<f8", 8, []int{}
	case "array":
	default:
		return fmt.Errorf("no decoding %q", c.Decode)
	}
	if c.ItemSize < 1 || c.ItemSize > 1<<10 {
		return fmt.Errorf("items of %d bytes", c.ItemSize)
	}
	if c.row = c.ItemSize; slices.Equal(c.Shape, []int{-1}) {
		c.row = -1
		return nil
	}
	if c.Optional {
		return errors.New("an array of a fixed shape cannot be optional: its rows are in every batch; decode it as bytes or npy")
	}
	for _, n := range c.Shape {
		if n < 0 || n > math.MaxInt32 || c.row > 0 && n > math.MaxInt32/c.row {
			return fmt.Errorf("shape %v: give sizes from 0 on, below 2 GiB together; or [-1] for arrays that differ in length", c.Shape)
		}
		c.row *= n
	}
	return nil
}

// Info is the body of INFO.
type Info struct {
	Samples uint64 `json:"samples"`
	// Chosen is how many of the samples a view has, EpochSamples the samples of an epoch, and View
	// the ID of the view; without one it is empty.
	Chosen       uint64 `json:"chosen"`
	EpochSamples uint64 `json:"epoch_samples"`
	View         string `json:"view,omitempty"`
	Shards       int    `json:"shards"`
	Blocks       uint64 `json:"blocks"`
	Bytes        uint64 `json:"bytes"`
	DecodedBytes uint64 `json:"decoded_bytes"`
	Digest       string `json:"digest"`
	Tables       string `json:"tables"`
	Generation   uint64 `json:"generation"`
	// Removed is how many of Samples were removed.
	Removed uint64 `json:"removed"`
	// Fields are in ascending order of names.
	Fields []format.FieldTotal `json:"fields"`
	// Types are the words by which fields that a program wrote are decoded; absent if none are
	// recorded.
	Types map[string]string `json:"types,omitempty"`
	// Lists are the names of lists of files, whose elements are the fields NAME.<n>.<ext>.
	Lists []string `json:"lists,omitempty"`
	// Layers are the tables of the layers that are open, by source and layer; see
	// OpenRequest.LayerTables.
	Layers map[string]map[string]string `json:"layers,omitempty"`
	// Ranks is the rank that the environment gives.
	Ranks Ranks `json:"ranks"`
	// Metrics is the address at which metrics are served.
	Metrics string `json:"metrics,omitempty"`
	// Sources, EpochLength and End describe a mix, see Mix. In a mix, the numbers above are sums.
	Sources     []SourceInfo `json:"sources,omitempty"`
	EpochLength uint64       `json:"epoch_length,omitempty"`
	End         uint64       `json:"end,omitempty"`
}

// typesOf returns the types of META. Types that cannot be parsed, such as types of a later version,
// are ignored.
func typesOf(meta format.Metadata) (types map[string]string) {
	_ = json.Unmarshal([]byte(meta["types"]), &types)
	return types
}

// Ranks is a process's place in a job, or says why it is not known. Without a launcher it is rank 0
// of 1.
type Ranks struct {
	Rank      int    `json:"rank"`
	WorldSize int    `json:"world_size"`
	Launcher  string `json:"launcher,omitempty"`
	Error     string `json:"error,omitempty"`
}

func ranksFrom(getenv func(string) string) Ranks {
	r, err := ranks.FromEnvironment(getenv)
	switch {
	case errors.Is(err, ranks.ErrNone):
		return Ranks{WorldSize: 1}
	case err != nil:
		return Ranks{Error: err.Error()}
	case r.World == 0:
		return Ranks{Error: "a " + r.Launcher + " does not tell its size: give rank and world_size"}
	}
	return Ranks{Rank: r.Rank, WorldSize: r.World, Launcher: r.Launcher}
}

// Started is the body of STARTED. Options.Stream fills in what it knows of ranks.
type Started struct {
	Rank        int    `json:"rank"`
	WorldSize   int    `json:"world_size"`
	GlobalBatch int    `json:"global_batch"`
	Tail        string `json:"tail"`
	Samples     uint64 `json:"samples"`
	Memory      int64  `json:"memory"`
	Workers     int    `json:"workers"`
	Checkpoint  string `json:"checkpoint"`
	// Sources are the names of the sources of a mix, by their numbers.
	Sources []string `json:"sources,omitempty"`
	// Units is the number of units of the epoch in which the run begins, or 0 if positions hold
	// samples.
	Units uint64 `json:"units,omitempty"`
	// Lengths tells what an epoch cuts off or leaves out of samples longer than a unit, if it does.
	Lengths *units.Summary `json:"lengths,omitempty"`
	// End is the position where the stream ends of a mix of units, or of a mix with weights that the
	// program set; 2^63 where it has no end.
	End uint64 `json:"end,omitempty"`
	// CostHash is a hash of the costs of all samples, and CostGroup the ranks that exchange entries:
	// they must be the same on all ranks. They are absent without a cost.
	CostHash  string `json:"cost_hash,omitempty"`
	CostGroup int    `json:"cost_group,omitempty"`
	// Close is called once the stream is closed.
	Close func() `json:"-"`
}
