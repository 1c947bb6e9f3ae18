// Package tar reads the samples of tar archives as WebDataset has them, plain or
// compressed with gzip, zstd, bzip2, xz or lz4, and those that tar makes of folders.
//
// A sample is a run of members that share the path up to the first dot of the base name. If the
// members of a sample are not adjacent, they are an error that names the place, because other
// programs would read them as several incomplete samples. So is an archive that was truncated
// between two members, which most programs read as a shorter archive.
//
//	in, err := source.LocalInput("train-000000.tar")
//	src, err := tar.New(ctx, []source.Input{in}, tar.Options{})
//	result, err := writer.Pack(ctx, store, src, writer.Options{})
package tar

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/input/fused"
	"github.com/shardtool/shardtool/internal/input/globs"
	"github.com/shardtool/shardtool/internal/input/kinds"
	decoded "github.com/shardtool/shardtool/internal/input/stream"
	"github.com/shardtool/shardtool/internal/input/tally"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
	"github.com/shardtool/shardtool/writer/source/internal/inputs"
)

// Options configures how archives are read.
type Options struct {
	// MemberMemory is the maximum number of bytes of a sample in memory. The default is 1 GiB.
	// Members above 256 KiB of a plain archive on disk, and those that exceed this limit on a
	// remote store, are read in place and do not count. A sample of a compressed archive that needs
	// more is an error.
	MemberMemory int64
	// Log gets a warning where the rule of the first dot fuses members that look like samples of
	// their own. By default it is discarded.
	Log *slog.Logger
	// Include, if not empty, selects the members that match one of these globs; Exclude then leaves
	// out members. A glob without a slash is matched with the last element of a name. The members that
	// macOS adds (._NAME, and all below __MACOSX) are left out unless a glob of Include spells them.
	Include, Exclude []string
	// KeyPrefix has the keys of each archive begin with its name, a/000000 for the sample 000000 of
	// a.tar, because they begin again in each. As many folders precede the name as it takes to tell
	// the archives apart.
	KeyPrefix bool
	// LastDot divides names at the last dot of the base name instead. The dots before it, which no key
	// has, become hyphens.
	LastDot bool
}

const (
	defaultMemberMemory = 1 << 30
	// inline is the largest member of a plain archive that is read sequentially. The writer's
	// workers read larger ones.
	inline = 256 << 10
	// together is the number of archives whose sizes are requested at a time.
	together = 16
)

// ErrTwice is the error of a key that occurs twice in an archive. It wraps format.ErrDuplicate.
var ErrTwice = fmt.Errorf("%w key", format.ErrDuplicate)

// tarSource reads the samples of archives.
type tarSource struct {
	opt      Options
	archives []archive
	sum      string
	seed     maphash.Seed

	from, to int // archives of the current part

	at      int // current archive
	given   int // samples of it that were returned
	open    *stream
	err     error    // error in the middle of an archive
	members []member // of the sample at hand
	ahead   member   // the member read last
	held    *member  // it, as the first member of the next sample; nil when it was taken
	seen    *seenKeys
	watch   fused.Watch
	few     bool // warned of

	tally  tally.Tally
	before tally.Tally // of earlier runs
}

// Tallied accounts for the members of archives that were read, and for those that earlier runs left
// out.
type Tallied interface{ Tally() tally.Tally }

// Tally implements Tallied.
func (t *tarSource) Tally() (all tally.Tally) {
	all.Add(&t.tally)
	all.Add(&t.before)
	return all
}

// rules are those by which members are left out, in the order of their counts in cursors.
var rules = [...]tally.Rule{tally.Fork, tally.Filtered}

// leaves returns the rule by which a member is left out, or the empty rule.
func (t *tarSource) leaves(name string) tally.Rule {
	choice := globs.Choice{Include: t.opt.Include, Exclude: t.opt.Exclude}
	switch rule := choice.Hides(name, name); {
	case rule == tally.Fork:
		return rule
	case !choice.Takes(name):
		return tally.Filtered
	}
	return ""
}

// archive is one of the inputs.
type archive struct {
	inputs.File
	coding decoded.Coding
	before string // of the keys of its samples
}

// member is a regular file of an archive.
type member struct {
	key, field string
	name       string
	offset     int64 // offset of its header in the decompressed archive
	size       int64
	data       []byte
	payload    int64 // offset of its content in a plain archive, if data is nil and size is not 0
}

// place is where the member is, for errors.
func (m *member) place(a *archive) string {
	return a.Path + " at " + strconv.FormatInt(m.offset, 10) + ": " + m.name
}

// New returns the samples of archives, in the order of the inputs and of the members. Payloads may
// be read concurrently. New requests the sizes of the archives, whose names must end in .tar,
// optionally followed by .gz, .zst, .bz2, .xz or .lz4, or in .tgz, .tbz2 or .txz. It reads no
// member. Naming an archive twice is an error. The caller must close the source, and closes the
// stores afterwards.
func New(ctx context.Context, in []source.Input, opt Options) (writer.Splitter, error) {
	opt.MemberMemory = cmp.Or(opt.MemberMemory, defaultMemberMemory)
	opt.Log = cmp.Or(opt.Log, slog.New(slog.DiscardHandler))
	if opt.MemberMemory < 0 {
		return nil, fmt.Errorf("memory of %d bytes for a sample: give a positive size", opt.MemberMemory)
	}
	t := &tarSource{opt: opt, seed: maphash.MakeSeed(), archives: make([]archive, len(in)), to: len(in)}
	known := map[string]bool{}
	files := inputs.Files(in)
	var endings []string
	for i, f := range files {
		coding, ok := coding(&f)
		if !ok {
			return nil, fmt.Errorf("%s: give archives that end in .tar, optionally followed by .gz, .zst, .bz2, .xz or .lz4, or in .tgz", f.Path)
		}
		if known[f.Path] {
			return nil, fmt.Errorf("%s is given twice: its samples would be read twice", f.Path)
		}
		known[f.Path] = true
		t.archives[i] = archive{File: f, coding: coding}
		if _, ending, ok := codingOf(f.Path); ok {
			endings = append(endings, ending)
		}
	}
	if opt.KeyPrefix {
		endings = slices.Compact(slices.Sorted(slices.Values(endings)))
		slices.SortFunc(endings, func(a, b string) int { return len(b) - len(a) })
		if err := inputs.SetStemsApart(files, endings...); err != nil {
			return nil, err
		}
		for i := range files {
			t.archives[i].before = files[i].Stem + "/"
		}
	}
	if err := t.measure(ctx); err != nil {
		return nil, err
	}
	h := sha256.New()
	for i := range t.archives {
		a := &t.archives[i]
		fmt.Fprintf(h, "%q %d %s\n", a.Path, a.Info.Size, a.Version(a.Info))
	}
	if len(opt.Include)+len(opt.Exclude) > 0 {
		fmt.Fprintf(h, "include %q exclude %q\n", opt.Include, opt.Exclude)
	}
	if opt.KeyPrefix {
		fmt.Fprintln(h, "key prefix archive")
	}
	if opt.LastDot {
		fmt.Fprintln(h, "names divide at the last dot")
	}
	t.sum = hex.EncodeToString(h.Sum(nil))
	return t, nil
}

// measure requests the sizes.
func (t *tarSource) measure(ctx context.Context) error {
	return inputs.Survey(ctx, len(t.archives), together, func(ctx context.Context, i int) (err error) {
		a := &t.archives[i]
		if a.Info, err = a.Store.Stat(ctx, a.Name); err != nil {
			return fmt.Errorf("%s: %w", a.Path, err)
		}
		return nil
	})
}

var _ writer.Splitter = (*tarSource)(nil)

// codingOf returns the compression that a name states, and the extension that states it.
func codingOf(name string) (c decoded.Coding, ending string, ok bool) {
	low := strings.ToLower(name)
	for i, short := range []string{".tgz", ".tbz2", ".txz"} {
		if strings.HasSuffix(low, short) {
			return [...]decoded.Coding{decoded.Gzip, decoded.Bzip2, decoded.Xz}[i], name[len(name)-len(short):], true
		}
	}
	rest, c := decoded.CutSuffix(low)
	if !strings.HasSuffix(rest, ".tar") {
		return c, "", false
	}
	return c, name[len(name)-(len(low)-len(rest)+len(".tar")):], true
}

// coding returns the compression of an archive: as the caller says, or as its name does, or the
// name of the link to it, because the caches of downloads name files by their content.
func coding(f *inputs.File) (decoded.Coding, bool) {
	for _, name := range []string{f.As, f.Name, f.Path} {
		if c, _, ok := codingOf(name); ok {
			return c, true
		}
		if name == f.As && name != "" {
			break
		}
	}
	return decoded.Plain, false
}

// Next implements writer.Source. An error of a whole archive ends the source. A member that cannot
// be packed is a *writer.SampleError.
func (t *tarSource) Next(ctx context.Context) (writer.Sample, error) {
	for {
		if err := cmp.Or(t.err, ctx.Err()); err != nil {
			return writer.Sample{}, err
		}
		if t.at >= t.to {
			if w := &t.watch; w.Few() && !t.few {
				t.few = true
				t.opt.Log.Warn("few samples for so many members: "+fused.Rule, "members", w.Files, "samples", w.Samples)
			}
			return writer.Sample{}, io.EOF
		}
		group, err := t.group(ctx)
		if err != nil {
			t.err = err
			return writer.Sample{}, err
		}
		if len(group) == 0 {
			t.leave()
			t.at, t.given = t.at+1, 0
			continue
		}
		t.given++
		return t.sample(group)
	}
}

// group reads the members of the next sample, or none at the end of the archive. A member that is
// not a regular file is a group without size, which is then refused. The group is valid until the
// next call.
func (t *tarSource) group(ctx context.Context) (group []member, err error) {
	if t.open == nil {
		if err := t.begin(ctx); err != nil {
			return nil, err
		}
	}
	open := t.open
	if open.archive.Remote || open.archive.Once() { // a read of a local file ends by itself
		defer context.AfterFunc(ctx, open.cancel)()
	}
	defer func() {
		if err != nil && ctx.Err() != nil {
			err = ctx.Err()
		}
	}()
	held := int64(0)
	clear(t.members) // their data may be large
	group = t.members[:0]
	for {
		for t.held == nil {
			t.ahead, err = t.open.next(t.opt.MemberMemory - held)
			if errors.Is(err, io.EOF) {
				return group, nil
			}
			if err != nil {
				return nil, err
			}
			t.tally.Listed++
			if rule := t.leaves(clean(t.ahead.name)); rule != "" {
				t.tally.Leave(rule, t.ahead.name)
				delete(t.open.refused, t.ahead.offset)
				continue
			}
			t.held = &t.ahead
		}
		if len(group) > 0 && t.held.key != group[0].key {
			return group, nil
		}
		held += int64(len(t.held.data))
		group = append(group, *t.held)
		t.members, t.ahead, t.held = group, member{}, nil
	}
}

// sample converts members to a sample.
func (t *tarSource) sample(group []member) (writer.Sample, error) {
	a := &t.archives[t.at]
	first := &group[0]
	s := writer.Sample{Key: a.before + first.key, Origin: first.place(a), Source: a.Path, Row: int64(t.given)}
	fail := func(m *member, err error) (writer.Sample, error) {
		return writer.Sample{}, &writer.SampleError{Origin: m.place(a), Source: a.Path, Row: int64(t.given),
			Key: a.before + m.key, Err: err}
	}
	if t.seen.again(first.key) {
		return fail(first, fmt.Errorf("%w: its members are not adjacent in the archive, or it occurs twice: sort the members by name, "+
			"or rename one of the samples", ErrTwice))
	}
	t.watch.Sample()
	for i := range group {
		m := &group[i]
		if t.watch.File(m.key, m.field) {
			t.opt.Log.Warn("members that look like samples of their own: "+fused.Rule, "archive", a.Path, "so",
				t.watch.Example())
		}
		if len(t.open.refused) > 0 {
			if err := t.open.refused[m.offset]; err != nil {
				delete(t.open.refused, m.offset)
				return fail(m, err)
			}
		}
		if t.opt.LastDot {
			if err := fused.Meet(clean(first.name), clean(m.name)); err != nil {
				return fail(m, err)
			}
		}
		if err := fused.Cut(clean(m.name), m.field); err != nil {
			return fail(m, err)
		}
		f := writer.Field{Name: m.field, Data: m.data}
		if m.data == nil && m.size > 0 {
			f.Size, f.Payload = m.size, &decoded.Payload{Store: a.Store, Name: a.Name, Info: a.Info, Off: m.payload,
				Size: m.size, Place: m.place(a)}
		}
		s.Fields = append(s.Fields, f)
	}
	return s, nil
}

func (t *tarSource) begin(ctx context.Context) (err error) {
	t.open, err = newStream(ctx, &t.archives[t.at], t.opt.LastDot)
	t.seen, t.held = newSeenKeys(t.seed), nil
	return err
}

func (t *tarSource) leave() {
	if t.open != nil {
		t.open.close()
		t.open = nil
	}
}

// Cursor returns the archive's number and the number of its samples that were returned, and where
// members were left out, how many by each of the rules.
func (t *tarSource) Cursor() string {
	cursor := fmt.Sprintf("%d:%d", t.at, t.given)
	all := t.Tally()
	for _, rule := range rules {
		if all.Total() > 0 {
			cursor += fmt.Sprintf(":%d", all.Left(rule))
		}
	}
	return cursor
}

// Seek moves to a cursor. It reads the earlier members of the same archive.
func (t *tarSource) Seek(ctx context.Context, cursor string) error {
	left, rest, ok := strings.Cut(cursor, ":")
	right, counts, counted := strings.Cut(rest, ":")
	at, err := strconv.Atoi(left)
	given, err2 := strconv.Atoi(right)
	var before tally.Tally
	for i, text := range strings.Split(counts, ":") {
		n, err := strconv.ParseInt(text, 10, 64)
		if counted && (err != nil || n < 0 || i >= len(rules)) {
			ok = false
			break
		}
		if counted {
			before.Listed += n
			before.LeaveMany(rules[i], n)
		}
	}
	if !ok || err != nil || err2 != nil || at < t.from || at > t.to || given < 0 || (at == t.to && given > 0) {
		return fmt.Errorf("cursor %q is not one of archives %d to %d", cursor, t.from, t.to)
	}
	t.leave()
	t.at, t.given, t.err, t.tally = at, 0, nil, tally.Tally{}
	for t.given < given {
		if err := ctx.Err(); err != nil {
			return err
		}
		group, err := t.group(ctx)
		if err != nil {
			t.err = err
			return err
		}
		if len(group) == 0 {
			return fmt.Errorf("cursor %q: %s has %d samples only: the archive has changed", cursor, t.archives[at].Path,
				t.given)
		}
		t.given++
		for i := range group { // not of the member after them, which has been read
			delete(t.open.refused, group[i].offset)
		}
		t.seen.again(group[0].key)
	}
	if !counted && t.tally.Left(tally.Fork) > 0 { // they were samples that could not be packed
		return fmt.Errorf("cursor %q: an earlier version counted members such as ._NAME of %s as samples: pack again from the beginning", cursor, t.archives[at].Path)
	}
	t.tally, t.before = tally.Tally{}, before
	if t.held != nil {
		t.tally.Listed = 1
	}
	return nil
}

// Fingerprint covers the paths, sizes and modification times (in a store, ETags) of the archives,
// in order.
func (t *tarSource) Fingerprint() string { return "tar:" + t.sum }

// Meta states the kinds of fields by their names.
func (t *tarSource) Meta() format.Metadata { return kinds.OfFiles().Meta() }

// Split limits the source to part of parts, counted from 0, and moves to its beginning. Parts are
// runs of whole archives: an archive belongs to part ⌊first byte × parts ÷ bytes⌋, with stored
// bytes counted over all archives. A part may be empty.
func (t *tarSource) Split(part, parts int) error {
	if parts < 1 || part < 0 || part >= parts {
		return fmt.Errorf("there is no part %d of %d: parts count from 0", part, parts)
	}
	t.leave()
	t.from, t.to = inputs.Run(len(t.archives), func(i int) int64 { return t.archives[i].Info.Size }, part, parts)
	t.at, t.given = t.from, 0
	return nil
}

// Total returns the size of the archives, of the current part after Split. The number of samples is
// not known.
func (t *tarSource) Total() (samples, bytes int64) {
	for i := t.from; i < t.to; i++ {
		bytes += t.archives[i].Info.Size
	}
	return 0, bytes
}

// Close closes the current archive. It does not close the stores.
func (t *tarSource) Close() error {
	t.leave()
	t.at = t.to
	return nil
}

// clean converts a member's name to a path below the root of the archive.
func clean(name string) string {
	for strings.HasPrefix(name, "./") {
		name = strings.TrimLeft(name[2:], "/")
	}
	return name
}
