package check

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"runtime"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/internal/format/names"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/reader/internal/catalog"
	"github.com/shardtool/shardtool/reader/internal/fetch"
)

// Verify opens a data set and compares what is stored with what its tables say. Faults do not stop
// it: they are in the report, also damage that keeps the data set from being opened. An error means
// that there is no data set, that a newer program wrote it, that ctx ended, that the server reads
// no ranges ([objstore.ErrNoRanges]), or that this process ran out of descriptors or memory; the
// report then holds what was found so far, and may be nil.
func Verify(ctx context.Context, store objstore.Store, o Options) (*Report, error) {
	o, err := o.filled()
	if err != nil {
		return nil, err
	}
	tables := ""
	if o.Generation != "" {
		tables = "manifest-" + o.Generation + ".bin"
	}
	c, err := catalog.OpenDamaged(ctx, fetch.NewSource(store), tables, max(64<<20, o.Memory/4))
	if err != nil {
		if ctx.Err() != nil || errors.Is(err, format.ErrVersion) || !fetch.Damaged(err) {
			return nil, err
		}
		r := recorder{report: Report{Deep: o.Deep}, stop: func(error) {}}
		r.fail(ctx, orderFirst, KindManifest, "", err)
		return r.finish(), nil
	}
	defer c.Close()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	v := &verifier{recorder: recorder{stop: stop}, c: c, o: o, told: map[int]bool{},
		fields: map[string]*format.FieldTotal{}, values: map[string]*metadata.AttrTotal{}}
	return v.run(ctx)
}

// filled validates the options and sets the defaults.
func (o Options) filled() (Options, error) {
	switch {
	case o.Generation != "" && !names.IsTables("manifest-"+o.Generation+".bin"):
		return o, fmt.Errorf("generation %q: give the 16 hexadecimal digits of a manifest-….bin, in lower case",
			o.Generation)
	case o.Workers < 0 || o.Memory < 0:
		return o, fmt.Errorf("%d workers, %d bytes: give numbers of at least 0", o.Workers, o.Memory)
	}
	o.Workers = cmp.Or(o.Workers, runtime.GOMAXPROCS(0))
	o.Memory = max(cmp.Or(o.Memory, 256<<20), 1<<20)
	return o, nil
}

func (v *verifier) run(ctx context.Context) (*Report, error) {
	v.report.Deep = v.o.Deep
	v.report.Removed, v.report.Purged = uint64(len(v.c.Tables.Removed)), uint64(len(v.c.Tables.Purged))
	v.summary(ctx)
	v.tables(ctx)
	if v.o.Deep {
		v.deep(ctx)
	} else {
		v.shallow(ctx)
	}
	v.digest(ctx)
	v.keysTable(ctx)
	v.others(ctx)
	if text := v.c.Source.Flips(); text != "" {
		v.note(text)
	}
	if ctx.Err() != nil {
		return v.finish(), context.Cause(ctx)
	}
	return v.finish(), nil
}

// verifier is one run of Verify.
type verifier struct {
	recorder
	c *catalog.Catalog
	o Options

	// What was looked at, of the tables' totals.
	done Progress

	told map[int]bool // parts of the tables whose damage is in the report

	// Of Deep. The goroutine that gives out jobs writes them.
	fields    map[string]*format.FieldTotal
	values    map[string]*metadata.AttrTotal // of integer attributes
	keys      multiset                       // of (hash of key, sample number)
	unindexed int                            // shards whose index could not be read
	complete  bool                           // all shards were looked at
	shards    sync.Map                       // *shardCheck by number, while its blocks are read
}

// summary holds manifest.json against the tables: every member, and the bytes.
func (v *verifier) summary(ctx context.Context) {
	var faults []error
	err := v.c.Source.Twice(ctx, fetch.Key{Name: format.ManifestName}, func(anew bool) (err error) {
		raw, stated := v.c.Raw, v.c.Stated
		// a generation was asked for, and another one may be published; or what was read is damaged
		if stated == nil || anew {
			if raw, err = v.c.Source.ReadWhole(ctx, format.ManifestName, catalog.MaxSummary, anew); err != nil {
				return err
			}
			if stated, err = metadata.DecodeSummary(raw); err != nil {
				return err
			}
		}
		if stated.Tables != v.c.Name {
			v.note(fmt.Sprintf("%s publishes another generation: %s", format.ManifestName, stated.Tables))
			return nil
		}
		faults = differences(raw, v.c.Summary().Encode())
		return errors.Join(faults...)
	})
	switch {
	case errors.Is(err, fs.ErrNotExist):
		v.note(format.ManifestName + " is missing: no generation is published")
	case err != nil && len(faults) == 0:
		v.fail(ctx, orderFirst, KindManifest, "", err)
	}
	for _, fault := range faults {
		v.fail(ctx, orderFirst, KindManifest, "", fault)
	}
}

// differences are the members of manifest.json that the tables contradict.
func differences(raw, want []byte) (faults []error) {
	if bytes.Equal(raw, want) {
		return nil
	}
	has, should := jsonMembers(raw), jsonMembers(want)
	all := maps.Clone(should)
	maps.Copy(all, has)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if !bytes.Equal(has[name], should[name]) {
			faults = append(faults, fmt.Errorf("%w: %s: member %q is %s, the tables say %s",
				format.ErrMismatch, format.ManifestName, name, orAbsent(has[name]), orAbsent(should[name])))
		}
	}
	if len(faults) == 0 {
		faults = append(faults, fmt.Errorf("%w: %s has the right members, not in the bytes that a writer puts there",
			format.ErrMismatch, format.ManifestName))
	}
	return faults
}

// jsonMembers are the members of a JSON object, each in its compact form.
func jsonMembers(raw []byte) map[string][]byte {
	var m map[string]json.RawMessage
	if json.Unmarshal(raw, &m) != nil {
		return nil // DecodeSummary has read it already
	}
	out := make(map[string][]byte, len(m))
	for name, value := range m {
		var b bytes.Buffer
		if json.Compact(&b, value) == nil {
			out[name] = b.Bytes()
		}
	}
	return out
}

func orAbsent(b []byte) string {
	const most = 200
	switch {
	case b == nil:
		return "absent"
	case len(b) > most:
		return string(b[:most]) + "…"
	}
	return string(b)
}

// tablesRead is how much of the tables is read at once.
const tablesRead = 1 << 20

// tables compares the hash of the tables' bytes with the one in their name.
func (v *verifier) tables(ctx context.Context) {
	v.fail(ctx, orderFirst, KindManifest, "", v.c.Source.Twice(ctx, fetch.Key{Name: v.c.Name}, func(anew bool) error {
		h := sha256.New()
		buf := make([]byte, min(tablesRead, v.c.Size))
		for off := int64(0); off < v.c.Size; off += int64(len(buf)) {
			buf = buf[:min(int64(len(buf)), v.c.Size-off)]
			if anew {
				fetch.Forget(ctx, v.c.Object, off, len(buf))
			}
			if err := v.c.Object.ReadAt(ctx, buf, off); err != nil {
				return err
			}
			h.Write(buf)
			v.read(len(buf))
		}
		if name := names.Tables(format.Hash(h.Sum(nil))); name != v.c.Name {
			return fmt.Errorf("%w: the bytes of %s have a hash that belongs to the name %s", format.ErrCorrupt,
				v.c.Name, name)
		}
		return nil
	}))
}

// eachShard calls f for every shard that the tables can be read for, in order, until it returns
// false. It returns whether f saw all shards.
func (v *verifier) eachShard(ctx context.Context, f func(s *fetch.Shard) bool) (all bool) {
	all = true
	for part, p := range v.c.Tables.Parts {
		info, err := v.c.Part(ctx, part)
		if err == nil && p.Shards > 0 {
			_, err = v.c.Shard(ctx, int(p.FirstShard)) // loads the rows of the part
		}
		if err != nil {
			all = false
			if !v.told[part] && ctx.Err() == nil {
				v.told[part] = true
				v.fail(ctx, int(p.FirstShard), KindManifest, "",
					fmt.Errorf("%d shards from number %d on cannot be checked: %w", p.Shards, p.FirstShard, err))
			}
			continue
		}
		for i := range info.Shards {
			s, err := v.c.Shard(ctx, int(p.FirstShard)+i)
			if err != nil || !f(s) {
				return false
			}
		}
	}
	return all
}

// digest compares the identity of the whole with what the tables' shards and rows add up to.
func (v *verifier) digest(ctx context.Context) {
	var all bool
	groups, failed := v.c.GroupsCheck(ctx)
	v.fail(ctx, orderFirst, KindManifest, "", failed)
	digest := metadata.Digest(int(v.c.Tables.Shards), func(yield func(*metadata.ShardEntry) bool) {
		all = v.eachShard(ctx, func(s *fetch.Shard) bool {
			if failed == nil {
				v.fail(ctx, s.Number, KindManifest, "", groups(s))
			}
			return yield(&metadata.ShardEntry{ShardInfo: *s.ShardInfo, Rows: s.Rows})
		})
	})
	if !all {
		return // which is a fault already
	}
	if digest != v.c.Tables.Digest {
		v.fail(ctx, orderFirst, KindManifest, "", fmt.Errorf("%w: %s: the shards' digest is %s, the head says %s",
			format.ErrMismatch,
			v.c.Name, format.DigestString(digest), format.DigestString(v.c.Tables.Digest)))
	}
}

// shallow looks at sizes and ends.
func (v *verifier) shallow(ctx context.Context) {
	var g errgroup.Group
	// Each takes one or two small requests: waiting is what they do.
	g.SetLimit(max(v.o.Workers, atOnce, v.c.Source.Requests()))
	v.eachShard(ctx, func(s *fetch.Shard) bool {
		g.Go(func() error {
			v.shallowShard(ctx, s)
			return nil
		})
		return ctx.Err() == nil
	})
	_ = g.Wait() // what fails is in the report
}

func (v *verifier) shallowShard(ctx context.Context, s *fetch.Shard) {
	defer v.step(1)
	// The answer to a read has the object's size too.
	t, raw, err := v.c.ReadHot(ctx, s)
	sized := v.size(ctx, s.Number, s.Name, s.Size)
	if s.Plain() {
		name, size := catalog.IndexObject(s.ShardInfo)
		sized = v.size(ctx, s.Number, name, size) && sized
	}
	if !sized {
		return
	}
	v.read(len(raw))
	if err != nil {
		v.fail(ctx, s.Number, KindIndex, "", err)
		return
	}
	v.count(1, t.Total.Blocks, t.Samples)
}

// size compares an object's size.
func (v *verifier) size(ctx context.Context, order int, name string, size uint64) bool {
	_, err := v.c.Source.CheckSize(ctx, name, size)
	v.fail(ctx, order, KindRead, "", err)
	return err == nil
}

// step reports progress.
func (v *verifier) step(shards uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.done.Shards += shards
	if v.o.Progress == nil {
		return
	}
	p := v.done
	p.TotalShards, p.TotalBytes = v.c.Tables.Shards, v.c.Tables.Bytes
	p.Bytes = min(v.report.Bytes, p.TotalBytes)
	p.Faults = len(v.report.Faults) + v.report.Dropped
	v.o.Progress(p)
}
