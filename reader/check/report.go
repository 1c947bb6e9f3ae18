package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"syscall"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/reader/internal/fetch"
)

// The kinds of faults.
const (
	KindMissing   = fetch.KindMissing   // an object that the tables name is not there
	KindTruncated = fetch.KindTruncated // an object is shorter than the tables say
	KindSize      = fetch.KindSize      // an object is longer than the tables say
	KindRead      = "read"              // the store failed to read; the bytes may be good
	KindChecksum  = fetch.KindChecksum  // stored bytes are not those that were packed
	KindDecode    = fetch.KindDecode    // bytes with the right checksum do not decode
	KindContent   = "content"           // decoded bytes are not what index and tables say
	KindIndex     = "index"             // a shard's index is damaged, or belongs to another shard
	KindManifest  = "manifest"          // manifest.json or the tables are damaged, or disagree
	KindKeys      = "keys"              // the keys table is damaged, or has other keys than the shards
	KindLayer     = "layer"             // a layer does not fit, or has other samples; see writer.CheckLayer
)

// Fault is one thing that is wrong. Shard is the name of the object, empty where it is none in
// particular. Block is the block's number in the shard and Offset a byte offset in the object, or
// -1. Key is the key of the sample concerned, or of the block's first one, where the index can be
// read. Kind is one of the Kind constants, and Detail is for people.
type Fault struct {
	Shard  string `json:"shard"`
	Block  int    `json:"block"`
	Offset int64  `json:"offset"`
	Key    string `json:"key"`
	Kind   string `json:"kind"`
	Detail string `json:"detail"`

	order int // shard's number, to sort by
}

// Report is what Verify found.
type Report struct {
	Deep bool `json:"deep"` // every byte was read. Otherwise only the ends of objects were.
	// What is readable. Bytes is what was read of shards and tables.
	Shards  uint64 `json:"shards"`
	Blocks  uint64 `json:"blocks"`
	Samples uint64 `json:"samples"`
	Bytes   uint64 `json:"bytes"`
	// Samples removed, and those that have lost their bytes.
	Removed uint64 `json:"removed"`
	Purged  uint64 `json:"purged"`
	// Unread counts faults of the store. It refused, failed or did not answer, which says nothing
	// about the data. Other faults are damage.
	Unread int `json:"unread,omitempty"`
	// -1 and empty where not known. They are in the order of the manifest, shards and keys table, at
	// most MaxFaults of them.
	Faults []Fault `json:"faults"`

	Dropped int `json:"dropped,omitempty"` // faults beyond the first 10,000
	// Notes are no faults. They say what is worth knowing: objects that this generation does not name,
	// checks that could not be made.
	Notes []string `json:"notes,omitempty"`
}

// MaxFaults bounds a report: a data set on a broken disk has more faults than anyone reads.
const MaxFaults = 10_000

// MaxUnread is how often a store may fail: then it is not worth asking for the rest.
const MaxUnread = 100

// OK reports whether nothing is wrong, and all was read.
func (r *Report) OK() bool { return len(r.Faults) == 0 }

// Damage counts the faults that are damage of the data.
func (r *Report) Damage() int { return len(r.Faults) + r.Dropped - r.Unread }

// Options say how much Verify reads. The zero value means the defaults.
type Options struct {
	// Generation picks a generation by the 16 hexadecimal digits in its tables' name. Empty: the one
	// that manifest.json names.
	Generation string
	// Workers is how many goroutines read, check and decode. 0: one for each processor.
	Workers int
	// Memory is the budget in bytes for blocks, at least 1 MiB. 0: 256 MiB.
	Memory int64
	// Deep reads, decodes and compares every byte. Otherwise: manifest.json against the tables, the
	// tables' own hash, the size of every object and the hot end of every shard.
	Deep bool
	// Progress, when not nil, is called now and then, by one goroutine at a time.
	Progress func(Progress)
}

// Progress is how far Verify has got.
type Progress struct {
	// Shards and Bytes of TotalShards and TotalBytes are done. Without Deep only shards count.
	Shards, TotalShards uint64
	Bytes, TotalBytes   uint64
	Faults              int
}

// recorder collects a report from several goroutines.
type recorder struct {
	mu     sync.Mutex
	report Report
	stop   func(error) // ends the run with an error that is no fault of an object
}

// orderFirst and orderLast place faults that belong to no shard.
const (
	orderFirst = -1
	orderLast  = math.MaxInt
)

// unread counts a failure of the store, and ends the run after many.
func (r *recorder) unread(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.report.Unread++; r.report.Unread == MaxUnread {
		r.stop(fmt.Errorf("the store failed %d times, so the rest was not read; the last time: %w", MaxUnread, err))
	}
}

func (r *recorder) add(f Fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.report.Faults) == MaxFaults {
		r.report.Dropped++
		return
	}
	r.report.Faults = append(r.report.Faults, f)
}

// fail records an error. kind is its kind where the error itself has none. The end of a context is
// no fault. An error of this machine or of the server is no fault of the data set: it stops the
// run.
func (r *recorder) fail(ctx context.Context, order int, kind, key string, err error) {
	switch {
	case err == nil || ctx.Err() != nil:
		return
	case objstore.Exhausted(err):
		r.stop(fmt.Errorf("this process ran out of a resource, which tells nothing about the data set: %w", err))
		return
	case errors.Is(err, objstore.ErrNoRanges): // of the server, not of any object
		r.stop(err)
		return
	}
	f := Fault{Block: -1, Offset: -1, Key: key, Kind: kind, Detail: err.Error(), order: order}
	var k *fetch.KindError
	switch {
	case errors.As(err, &k):
		f.Kind = k.Kind
	case !fetch.Damaged(err):
		f.Kind = KindRead
		if !errors.Is(err, syscall.EIO) { // bytes of a disk that are lost
			r.unread(err)
		}
	}
	var at *format.PosError
	if errors.As(err, &at) {
		f.Shard, f.Block, f.Offset = at.Shard, at.Block, at.Offset
		if at.Shard != "" {
			f.Detail = at.Err.Error() // the place is in the other members
		}
		if at.Key != "" {
			f.Key = at.Key
		}
	}
	r.add(f)
}

func (r *recorder) note(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.Notes = append(r.report.Notes, text)
}

// read counts bytes, count counts what was found good.
func (r *recorder) read(bytes int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.Bytes += uint64(bytes)
}

func (r *recorder) count(shards, blocks, samples uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.Shards, r.report.Blocks, r.report.Samples = r.report.Shards+shards, r.report.Blocks+blocks,
		r.report.Samples+samples
}

// finish returns the report in order.
func (r *recorder) finish() *Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.SortStableFunc(r.report.Faults, func(a, b Fault) int {
		return cmp.Or(cmp.Compare(a.order, b.order), cmp.Compare(a.Block, b.Block), cmp.Compare(a.Offset, b.Offset))
	})
	report := r.report
	return &report
}
