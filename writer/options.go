package writer

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/hint"
	"github.com/shardtool/shardtool/internal/format/codec"
)

// Mode is what a Writer does with an existing data set.
type Mode int

const (
	// ModeCreate makes a new data set; an existing one is ErrExists.
	ModeCreate Mode = iota
	// ModeOverwrite publishes a new generation in place of the current one, if any. It deletes the
	// shards that an unfinished pack of the same name left, unless Options.Resume is set.
	ModeOverwrite
	// ModeAppend publishes a new generation: the existing samples, then the new ones.
	ModeAppend
)

// Level is a level of compression.
type Level = codec.Level

// The levels.
const (
	LevelDefault = codec.LevelDefault
	LevelFastest = codec.LevelFastest
	LevelBetter  = codec.LevelBetter
	LevelBest    = codec.LevelBest
)

func (m Mode) String() string { return [...]string{"create", "overwrite", "append"}[m] }

// Faults are what happens to samples that cannot be read or stored. The zero value ends the pack
// with the error of the first.
type Faults struct {
	// Skip leaves such samples out, and counts and lists them.
	Skip bool
	// MaxSkipped is the most samples that Skip may leave out; MaxSkippedShare is the same as a share
	// of all samples. Zero sets no limit.
	MaxSkipped      int64
	MaxSkippedShare float64
	// Skipped, when not nil, is called for every sample that is left out, from any goroutine.
	Skipped func(*SampleError)
}

// Errors a caller branches on.
var (
	// ErrExists: there is a data set, and the mode is ModeCreate.
	ErrExists = hint.New("there is a data set already", hint.Set("mode", "append", "adds to it"),
		hint.Set("mode", "overwrite", "replaces it"))
	// ErrLost: another writer published first, or put other bytes under a name that this one needs.
	ErrLost = errors.New("another writer was here")
	// ErrIncomplete: the generation was published, and then objects that it names disappeared or
	// were replaced.
	ErrIncomplete = errors.New("published, but incomplete")
	// ErrSkipped: more samples were skipped than Options allow.
	ErrSkipped = errors.New("too many samples skipped")
	// ErrSource: what Resume found was packed from other sources or with other options.
	ErrSource = hint.New("leftovers of another pack", hint.Command("deletes young ones, too", "prune", "--grace", "0s"))
	// ErrDuplicateKey: two shards have the same key. It wraps format.ErrDuplicate.
	ErrDuplicateKey = hint.With(fmt.Errorf("%w key", format.ErrDuplicate),
		hint.Set("duplicate-keys", "keep", "accepts it"))
	// ErrLength: a sample has no array whose length Options.Lengths keeps.
	ErrLength = hint.New("no length", hint.Set("on-error", "skip", "leaves such samples out and lists them"))
	// ErrEmpty: there was no sample to write.
	ErrEmpty = errors.New("no samples")
)

// Options of a Writer. The zero value of each field is its documented default.
type Options struct {
	// Name begins the shards' names: "train" gives train-000000.tar.zst. Default "data".
	Name string
	// BlockSize closes a block at the sample that brings it to this many decoded bytes: 4 KiB to 16
	// MiB. The default is DefaultBlockSize, and a quarter of that for small samples: a block then
	// also closes at the sample with which it has both 256 KiB and 64 samples, so that shuffling
	// moves fewer samples together.
	BlockSize int64
	// ShardSize closes a shard in the same way. It is at least BlockSize; the default is 256 MiB.
	ShardSize int64
	// SamplesPerShard closes a shard at this many samples; 0 sets no limit.
	SamplesPerShard int64
	// Level of compression. It changes the stored bytes, and no cut, order or identity.
	Level Level
	// Layout is how samples are stored in shards.
	Layout Layout
	// Plain writes uncompressed .tar shards with sidecars in place of .tar.zst.
	Plain bool
	Mode  Mode
	// Resume adopts the shards that an interrupted run with the same sources and options put. If
	// that run published, and its generation is still the current one, its result is returned.
	Resume bool
	// KeepDuplicates allows one key in several shards.
	KeepDuplicates bool
	Faults         Faults
	// Workers compress in parallel. Zero means GOMAXPROCS, which follows the affinity mask and the
	// cgroup.
	Workers int
	// Memory bounds the bytes of blocks in flight; the default is 256 MiB. A block that alone
	// exceeds it is written on its own.
	Memory int64
	// TempDir is the folder for data that is sorted and does not fit in memory; the default is the
	// folder of the system.
	TempDir string
	// Lengths are attributes whose values are numbers of elements: attribute to field. The field
	// holds one-dimensional arrays and its name ends in .npy. A sample without such an array cannot
	// be stored; one that has the attribute already keeps its value.
	Lengths map[string]string
	// SourceOptions are settings of the source that the bytes depend on. They are stored in the
	// provenance.
	SourceOptions map[string]string
	// Progress, when not nil, is called after every block. It must return quickly and may be called
	// from any goroutine.
	Progress func(Progress)
	// Stored, when not nil, is called after every shard that this run puts, with the number of its
	// samples, in the order of the shards. These samples survive a kill of the process: a run that
	// resumes adopts the shard. It must return quickly and may be called from another goroutine.
	Stored func(samples int64)
	// LeftOut, when not nil, is called before the data set is published: how many names of the sources
	// were left out, by rule. The metadata of the generation has them. Of a pack in parts each part
	// has its own, and Commit adds them up.
	LeftOut func() map[string]int64
	// Log gets warnings, which are no errors. By default they are discarded.
	Log *slog.Logger
}

// DefaultBlockSize closes a block unless Options.BlockSize is set, in decoded bytes.
const DefaultBlockSize = 1 << 20

// Progress counts what has been written so far.
type Progress struct {
	Samples, Blocks, Shards int64
	// PayloadBytes are bytes of fields, StoredBytes bytes of shards.
	PayloadBytes, StoredBytes int64
	// Adopted is how many of Samples an earlier run had written.
	Adopted int64
}

// Layout is how samples are stored in shards.
type Layout int

const (
	// LayoutSamples stores each sample as members of a tar: any fields of any size.
	LayoutSamples Layout = iota
	// LayoutStacked stores a block as one array a field, with a row for each sample (SPEC 11): all
	// samples have the same fields, and each field is an NPY file of one type and shape. Another
	// sample is an error that wraps ErrLayout.
	LayoutStacked
	// LayoutAuto stacks samples while that is possible. One that does not fit ends the shard, and the
	// next shard is an ordinary one; each shard after an ordinary one is stacked if its first sample
	// can be.
	LayoutAuto
	// LayoutOfSource is LayoutStacked if the source is a Stacker that asks for it, and else
	// LayoutSamples. It is for Pack and PackPart.
	LayoutOfSource
)

func (l Layout) String() string { return [...]string{"samples", "stacked", "auto", "of the source"}[l] }

// ParseLayout parses the result of String.
func ParseLayout(s string) (Layout, error) {
	for l := LayoutSamples; l <= LayoutAuto; l++ {
		if s == l.String() {
			return l, nil
		}
	}
	return 0, fmt.Errorf("layout %q is not samples, stacked or auto", s)
}
