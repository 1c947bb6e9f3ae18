package reader

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore"
)

// Verify opens a data set and verifies it. Damage that keeps it from being opened is a report with one fault; an error
// says that there is no data set, that a newer program wrote it, or that ctx ended.
func Verify(ctx context.Context, store objstore.Store, opts Options, o VerifyOptions) (*Report, error) {
	d, err := Open(ctx, store, opts)
	if err != nil {
		if ctx.Err() != nil || errors.Is(err, format.ErrVersion) || !isDamage(err) {
			return nil, err
		}
		r := recorder{report: Report{Deep: o.Deep}}
		r.fail(ctx, orderFirst, KindManifest, "", err)
		return r.finish(), nil
	}
	defer d.Close()
	return d.Verify(ctx, o)
}

// Verify compares what is stored with what the tables say of it. Faults do not stop it: they are in
// the report. An error means that ctx ended, the data set was closed, the server reads no ranges
// ([objstore.ErrNoRanges]), or this process has run out of descriptors or memory; the report then
// holds what was found so far.
func (d *Dataset) Verify(ctx context.Context, o VerifyOptions) (*Report, error) {
	ctx, end := d.scope(ctx)
	defer end()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	v := &verifier{recorder: recorder{stop: stop}, d: d, o: o, told: map[int]bool{}, fields: map[string]*format.FieldTotal{}}
	v.report.Deep = o.Deep
	v.summary(ctx)
	v.tables(ctx)
	if o.Deep {
		v.deep(ctx)
	} else {
		v.shallow(ctx)
	}
	v.digest(ctx)
	v.keysTable(ctx)
	v.others(ctx)
	if text := d.flips.text(); text != "" {
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
	d *Dataset
	o VerifyOptions

	// What was looked at, of the tables' totals.
	done Progress

	told map[int]bool // parts of the tables whose damage is in the report

	// Of Deep. The goroutine that gives out jobs writes them.
	fields    map[string]*format.FieldTotal
	keys      multiset // of (hash of key, sample number)
	unindexed int      // shards whose index could not be read
	complete  bool     // all shards were looked at
}

// summary holds manifest.json against the tables: every member, and the bytes.
func (v *verifier) summary(ctx context.Context) {
	var faults []error
	err := v.d.twice(ctx, handleKey{name: format.ManifestName}, func(anew bool) (err error) {
		raw, stated := v.d.raw, v.d.stated
		if stated == nil || anew { // a generation was asked for, and another one may be published; or what was read is damaged
			if raw, err = v.d.readWhole(ctx, format.ManifestName, maxSummary, anew); err != nil {
				return err
			}
			if stated, err = format.DecodeSummary(raw); err != nil {
				return err
			}
		}
		if stated.Tables != v.d.name {
			v.note(fmt.Sprintf("%s publishes another generation: %s", format.ManifestName, stated.Tables))
			return nil
		}
		faults = differences(raw, v.d.Summary().Encode())
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
	for _, name := range sortedKeys(has, should) {
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

func sortedKeys(ms ...map[string][]byte) (names []string) {
	for _, m := range ms {
		for name := range m {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
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

// tables compares the hash of the tables' bytes with the one in their name.
func (v *verifier) tables(ctx context.Context) {
	v.fail(ctx, orderFirst, KindManifest, "", v.d.twice(ctx, handleKey{name: v.d.name}, func(anew bool) error {
		h := sha256.New()
		buf := make([]byte, min(fetchMost, v.d.size))
		for off := int64(0); off < v.d.size; off += int64(len(buf)) {
			buf = buf[:min(int64(len(buf)), v.d.size-off)]
			if anew {
				forget(ctx, v.d.object, off, len(buf))
			}
			if err := v.d.object.ReadAt(ctx, buf, off); err != nil {
				return err
			}
			h.Write(buf)
			v.read(len(buf))
		}
		if name := format.TablesName(format.Hash(h.Sum(nil))); name != v.d.name {
			return fmt.Errorf("%w: the bytes of %s have a hash that belongs to the name %s", format.ErrCorrupt, v.d.name, name)
		}
		return nil
	}))
}

// eachShard calls f for every shard that the tables can be read for, in order, until it says false. It returns whether f
// saw all shards.
func (v *verifier) eachShard(ctx context.Context, f func(s *shard) bool) (all bool) {
	all = true
	for part, p := range v.d.tables.Parts {
		info, err := v.d.partInfo(ctx, part)
		if err == nil {
			_, err = v.d.partRows(ctx, part, info)
		}
		if err != nil {
			all = false
			if !v.told[part] && ctx.Err() == nil {
				v.told[part] = true
				v.fail(ctx, int(p.FirstShard), KindManifest, "", fmt.Errorf("%d shards from number %d on cannot be checked: %w", p.Shards, p.FirstShard, err))
			}
			continue
		}
		for i := range info.shards {
			s, err := v.d.shard(ctx, int(p.FirstShard)+i)
			if err != nil || !f(s) {
				return false
			}
		}
	}
	return all
}

// digest compares the identity of the whole with what the tables' shards and rows add up to.
func (v *verifier) digest(ctx context.Context) {
	d := format.NewDigester(int(v.d.tables.Shards))
	if !v.eachShard(ctx, func(s *shard) bool {
		d.Add(&format.ShardEntry{ShardInfo: *s.ShardInfo, Rows: s.rows})
		return true
	}) {
		return // which is a fault already
	}
	if digest := d.Sum(); digest != v.d.tables.Digest {
		v.fail(ctx, orderFirst, KindManifest, "", fmt.Errorf("%w: %s: the shards' digest is %s, the head says %s", format.ErrMismatch,
			v.d.name, format.DigestString(digest), format.DigestString(v.d.tables.Digest)))
	}
}

// shallow looks at sizes and ends.
func (v *verifier) shallow(ctx context.Context) {
	var g errgroup.Group
	// Each takes two or three small requests: waiting is what they do.
	g.SetLimit(max(v.d.opts.Workers, 16))
	v.eachShard(ctx, func(s *shard) bool {
		g.Go(func() error {
			v.shallowShard(ctx, s)
			return nil
		})
		return ctx.Err() == nil
	})
	_ = g.Wait() // what fails is in the report
}

func (v *verifier) shallowShard(ctx context.Context, s *shard) {
	defer v.step(1)
	sized := v.size(ctx, s.number, s.Name, s.Size)
	if s.Plain() {
		sized = v.size(ctx, s.number, indexObject(s.ShardInfo), s.Tail) && sized
	}
	if !sized {
		return
	}
	t, raw, err := v.d.readHot(ctx, s)
	v.read(len(raw))
	if err != nil {
		v.fail(ctx, s.number, KindIndex, "", err)
		return
	}
	v.count(1, t.Total.Blocks, t.Samples)
}

// size compares an object's size.
func (v *verifier) size(ctx context.Context, order int, name string, size uint64) bool {
	h, err := v.d.objects.acquire(ctx, name)
	if err != nil {
		v.fail(ctx, order, KindRead, "", v.d.missing(err, name))
		return false
	}
	defer v.d.objects.release(h)
	if err := v.d.checkSize(ctx, h, size); err != nil {
		v.fail(ctx, order, KindRead, "", err)
		return false
	}
	return true
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
	p.TotalShards, p.TotalBytes = v.d.tables.Shards, v.d.tables.Bytes
	p.Bytes = min(v.report.Bytes, p.TotalBytes)
	p.Faults = len(v.report.Faults) + v.report.Dropped
	v.o.Progress(p)
}

// others notes objects that this generation does not name: no faults, since older generations and unfinished packs leave
// them.
func (v *verifier) others(ctx context.Context) {
	known := map[string]bool{format.ManifestName: true, v.d.name: true, v.d.KeysTable(): true}
	v.eachShard(ctx, func(s *shard) bool {
		known[s.Name], known[indexObject(s.ShardInfo)] = true, true
		return true
	})
	var count, size int64
	var first string
	for info, err := range v.d.store.List(ctx, "") {
		if err != nil {
			if ctx.Err() == nil {
				v.note("objects that belong to nothing were not looked for: " + err.Error())
			}
			return
		}
		if known[info.Name] {
			continue
		}
		if count++; count == 1 {
			first = info.Name
		}
		size += info.Size
	}
	if count > 0 {
		v.note(fmt.Sprintf("%d objects of %d bytes belong to no shard of this generation (%s is the first): other generations, or "+
			"what an interrupted pack left", count, size, first))
	}
}
