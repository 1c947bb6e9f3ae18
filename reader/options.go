package reader

import (
	"cmp"
	"fmt"
	"runtime"

	"github.com/shardtool/shardtool/internal/format/names"
)

const (
	// defaultMemory is the budget of one iteration: some 60 blocks of ordinary size on every one of 4
	// cores.
	defaultMemory = 256 << 20
	// minMemory is the least budget accepted. One job is always let through, whatever it takes: see
	// Options.Memory.
	minMemory = 1 << 20
	// maxWorkers keeps a mistaken number from starting a million goroutines.
	maxWorkers = 4096
)

// Options say how a data set is opened and read. The zero value means the defaults.
type Options struct {
	// Generation picks a generation by the 16 hexadecimal digits in its tables' name. Empty: what
	// manifest.json names.
	Generation string
	// View is the name or the ID of a view of the data set. Orders and streams then have its samples:
	// see Dataset.UseView. Empty: the whole data set.
	View string
	// Removed are numbers of samples, ascending, that count as removed in addition to the samples that
	// the generation lists.
	Removed []uint64
	// Layers are data sets that add fields to the samples: each must be a layer of this data set.
	// Get and streams deliver their fields too.
	Layers []Layer
	// Fields, when not empty, names the fields that Get and streams deliver, by their names or, where
	// only one field has the name with an extension, without it: caption for caption.txt. A sample may
	// lack any of them; one with a question mark, as in "caption?", the whole data set too, which
	// CheckFields refuses if all data sets of a run do. Data sets that have none of them are not read:
	// neither layers, nor the data set itself, except for samples that no layer read covers.
	Fields []string
	// Workers is how many goroutines fetch, check and decode for one iteration. 0:
	// runtime.GOMAXPROCS(0), which follows the CPU affinity and the cgroup's limit. With a remote
	// store (objstore.Traits), as many requests are in flight as it asks for, and Workers of their
	// answers are checked and decoded at a time.
	Workers int
	// Memory is the budget in bytes of one iteration for blocks, stored and decoded, and once more for
	// all random reads together. 0: 256 MiB. At least 1 MiB; a frame larger than the budget is let
	// through when it is alone, a block that would have to be held whole is refused with
	// format.ErrTooLarge. Caches (tables, indexes) come on top: at most a quarter of it or 64 MiB
	// each, whichever is more.
	Memory int64

	layer bool // whether the data set is opened as a layer
}

// filled validates the options and fills in the defaults.
func (o Options) filled() (Options, error) {
	if o.Generation != "" && !names.IsTables(tablesName(o.Generation)) {
		return o, fmt.Errorf("generation %q: give the 16 hexadecimal digits of a manifest-….bin, in lower case",
			o.Generation)
	}
	if o.Workers < 0 || o.Workers > maxWorkers {
		return o, fmt.Errorf("%d workers: give 1 to %d, or 0 for one a core", o.Workers, maxWorkers)
	}
	o.Workers, o.Memory = cmp.Or(o.Workers, runtime.GOMAXPROCS(0)), cmp.Or(o.Memory, defaultMemory)
	if o.Memory < minMemory {
		return o, fmt.Errorf("memory budget of %d bytes: give at least %d, or 0 for %d", o.Memory, minMemory,
			defaultMemory)
	}
	return o, nil
}

func tablesName(generation string) string { return "manifest-" + generation + ".bin" }

// cacheLimit bounds each of the caches of tables and indexes.
func (o Options) cacheLimit() int64 { return max(64<<20, o.Memory/4) }

// atOnce is how many data sets are asked for their tables at a time.
const atOnce = 16
