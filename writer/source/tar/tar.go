// Package tar has the samples of tar archives as a writer.Source: those of WebDataset, plain, gzip or zstd, and what tar makes of
// folders.
//
// A sample is the members, one behind the other, that share the path up to the first dot of the base name. Members of a sample
// that do not stand together would be halves of samples elsewhere: here they are an error that names both places, as is an
// archive that was cut between two members, which to most programs looks like a shorter one.
//
//	in, err := source.LocalInput("train-000000.tar")
//	src, err := tar.New(ctx, []source.Input{in}, tar.Options{})
//	result, err := writer.Pack(ctx, store, src, writer.Options{})
package tar

import (
	"archive/tar"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"math/bits"
	"strconv"
	"strings"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
	decoded "github.com/shardtool/shardtool/writer/source/internal/stream"
)

// Options change how archives are read.
type Options struct {
	// MemberMemory is the most bytes of a sample that are held in memory, default 1 GiB. In plain archives on disk members above
	// 256 KiB are read where they lie and do not count, behind a network those that would be too many; a sample of a compressed one
	// that needs more is an error.
	MemberMemory int64
}

const (
	defaultMemberMemory = 1 << 30
	// inline is the largest member of a plain archive that is read in passing; larger ones are left to the writer's workers.
	inline = 256 << 10
	// together is how many archives are asked for their sizes at once.
	together = 16
	// maxSeen bounds the keys of an archive that are remembered to find samples that are torn apart: 64 MiB or so. Beyond, what
	// is torn far apart comes up as a duplicate key in the writer.
	maxSeen = 4 << 20
)

// Tar is the samples of archives, in the order of the inputs and of the members. It is for one goroutine; payloads may be read from
// others.
type Tar struct {
	opt      Options
	archives []archive
	sum      string
	seed     maphash.Seed

	from, to int // archives of the part

	at    int // archive
	given int // samples of it
	open  *stream
	err   error   // reading ended in the middle of an archive
	held  *member // read, and of the next sample
	seen  map[uint64]struct{}
}

// archive is one of the inputs.
type archive struct {
	source.Input
	info   objstore.Info
	coding decoded.Coding
	remote bool
}

// version is what the archive is told apart by from another of its name and size: its tag, or on this machine its time, which is the
// same for all machines that see the file.
func (a *archive) version(info objstore.Info) string {
	if a.remote {
		return info.ETag
	}
	return strconv.FormatInt(info.ModTime.UnixNano(), 10)
}

func (a *archive) unchanged(ctx context.Context, obj objstore.Object) error {
	info, err := obj.Info(ctx)
	if err == nil && (info.Size != a.info.Size || a.version(info) != a.version(a.info)) {
		err = errChanged
	}
	return err
}

// member is a regular file of an archive.
type member struct {
	key, field string
	name       string
	offset     int64 // of its header in the (decompressed) archive
	size       int64
	data       []byte
	payload    int64 // where it lies in a plain archive, when data is nil and size is not 0
}

// New asks for the sizes of archives: inputs whose names end in .tar, .tar.gz, .tgz or .tar.zst. It reads no member yet. The same
// archive twice is an error. The stores stay the caller's.
func New(ctx context.Context, inputs []source.Input, opt Options) (*Tar, error) {
	if opt.MemberMemory == 0 {
		opt.MemberMemory = defaultMemberMemory
	}
	if opt.MemberMemory < 0 {
		return nil, fmt.Errorf("source: memory of %d bytes for a sample: give a positive size", opt.MemberMemory)
	}
	t := &Tar{opt: opt, seed: maphash.MakeSeed(), archives: make([]archive, len(inputs)), to: len(inputs)}
	known := map[string]bool{}
	for i, in := range source.Named(inputs) {
		a := &t.archives[i]
		a.Input = in
		a.remote = objstore.TraitsOf(in.Store).Remote()
		var ok bool
		if a.coding, ok = codingOf(in.Name); !ok {
			return nil, fmt.Errorf("source: %s: give archives that end in .tar, .tar.gz, .tgz or .tar.zst", in.Path)
		}
		if known[in.Path] {
			return nil, fmt.Errorf("source: %s is named twice: its samples would come twice", in.Path)
		}
		known[in.Path] = true
	}
	if err := t.measure(ctx); err != nil {
		return nil, err
	}
	h := sha256.New()
	for i := range t.archives {
		a := &t.archives[i]
		fmt.Fprintf(h, "%q %d %s\n", a.Path, a.info.Size, a.version(a.info))
	}
	t.sum = hex.EncodeToString(h.Sum(nil))
	return t, nil
}

// measure asks for sizes.
func (t *Tar) measure(ctx context.Context) error {
	return source.Survey(ctx, len(t.archives), together, func(ctx context.Context, i int) (err error) {
		a := &t.archives[i]
		if a.info, err = a.Store.Stat(ctx, a.Name); err != nil {
			return fmt.Errorf("source: %s: %w", a.Path, err)
		}
		return nil
	})
}

var _ writer.Splitter = (*Tar)(nil)

// Is says whether a name is that of an archive that New reads.
func Is(name string) bool {
	_, ok := codingOf(name)
	return ok
}

func codingOf(name string) (c decoded.Coding, ok bool) {
	rest, c := decoded.CutSuffix(name)
	low := strings.ToLower(rest)
	if c == decoded.Plain && strings.HasSuffix(low, ".tgz") {
		return decoded.Gzip, true
	}
	return c, strings.HasSuffix(low, ".tar")
}

// Next is writer.Source's. What is wrong with an archive as a whole ends the source; a member that cannot be packed is a
// *writer.SampleError.
func (t *Tar) Next(ctx context.Context) (writer.Sample, error) {
	for {
		if err := cmp.Or(t.err, ctx.Err()); err != nil {
			return writer.Sample{}, err
		}
		if t.at >= t.to {
			return writer.Sample{}, io.EOF
		}
		group, err := t.group(ctx)
		if err != nil {
			t.err = err
			return writer.Sample{}, err
		}
		if group == nil {
			t.leave()
			t.at, t.given = t.at+1, 0
			continue
		}
		t.given++
		return t.sample(group)
	}
}

// group reads the members of the next sample; none at the end of the archive. Members that are no regular files come alone, with
// no size, to be refused.
func (t *Tar) group(ctx context.Context) (group []member, err error) {
	if t.open == nil {
		if err := t.begin(ctx); err != nil {
			return nil, err
		}
	}
	open := t.open
	defer context.AfterFunc(ctx, open.cancel)()
	defer func() {
		if err != nil && ctx.Err() != nil {
			err = ctx.Err()
		}
	}()
	held := int64(0)
	for {
		if t.held == nil {
			m, err := t.open.next(t.opt.MemberMemory - held)
			if errors.Is(err, io.EOF) {
				return group, nil
			}
			if err != nil {
				return nil, err
			}
			t.held = &m
		}
		if len(group) > 0 && t.held.key != group[0].key {
			return group, nil
		}
		held += int64(len(t.held.data))
		group = append(group, *t.held)
		t.held = nil
	}
}

// sample turns members into a sample.
func (t *Tar) sample(group []member) (writer.Sample, error) {
	a := &t.archives[t.at]
	first := &group[0]
	s := writer.Sample{Key: first.key, Origin: a.Path + " at " + strconv.FormatInt(first.offset, 10) + ": " + first.name, Source: a.Path, Row: int64(t.given)}
	fail := func(m *member, err error) (writer.Sample, error) {
		return writer.Sample{}, &writer.SampleError{Origin: fmt.Sprintf("%s at %d: %s", a.Path, m.offset, m.name), Source: a.Path, Row: int64(t.given), Key: m.key, Err: err}
	}
	if len(t.seen) < maxSeen {
		h := maphash.String(t.seed, first.key)
		if _, torn := t.seen[h]; torn {
			return fail(first, fmt.Errorf("%w key: its members do not stand together in the archive, or it comes twice: sort the members by name, "+
				"or rename one of the samples", format.ErrDuplicate))
		}
		t.seen[h] = struct{}{}
	}
	for i := range group {
		m := &group[i]
		if err := t.open.refused[m.offset]; err != nil {
			delete(t.open.refused, m.offset)
			return fail(m, err)
		}
		f := writer.Field{Name: m.field, Data: m.data}
		if m.data == nil && m.size > 0 {
			f.Size, f.Payload = m.size, &span{archive: a, member: *m}
		}
		s.Fields = append(s.Fields, f)
	}
	return s, nil
}

func (t *Tar) begin(ctx context.Context) (err error) {
	t.open, err = newStream(ctx, &t.archives[t.at])
	t.seen, t.held = map[uint64]struct{}{}, nil
	return err
}

func (t *Tar) leave() {
	if t.open != nil {
		t.open.close()
		t.open = nil
	}
}

// Cursor is the archive's number, and how many of its samples were given.
func (t *Tar) Cursor() string { return fmt.Sprintf("%d:%d", t.at, t.given) }

// Seek goes to a cursor. Within an archive it reads over what comes before.
func (t *Tar) Seek(ctx context.Context, cursor string) error {
	left, right, ok := strings.Cut(cursor, ":")
	at, err := strconv.Atoi(left)
	given, err2 := strconv.Atoi(right)
	if !ok || err != nil || err2 != nil || at < t.from || at > t.to || given < 0 || (at == t.to && given > 0) {
		return fmt.Errorf("source: cursor %q is none of archives %d to %d", cursor, t.from, t.to)
	}
	t.leave()
	t.at, t.given, t.err = at, 0, nil
	for t.given < given {
		if err := ctx.Err(); err != nil {
			return err
		}
		group, err := t.group(ctx)
		if err != nil {
			t.err = err
			return err
		}
		if group == nil {
			return fmt.Errorf("source: cursor %q: %s has %d samples only: it is not the archive it was", cursor, t.archives[at].Path, t.given)
		}
		t.given++
		clear(t.open.refused)
		if len(t.seen) < maxSeen {
			t.seen[maphash.String(t.seed, group[0].key)] = struct{}{}
		}
	}
	return nil
}

// Fingerprint covers paths, sizes and modification times (in a store, tags) of the archives, in order.
func (t *Tar) Fingerprint() string { return "tar:" + t.sum }

// Meta is empty.
func (t *Tar) Meta() format.Metadata { return nil }

// Split limits the source to one of so many parts, counted from 0, and goes to its beginning. Parts are runs of whole archives:
// an archive belongs to part ⌊first byte × parts ÷ bytes⌋, where bytes are those of the archives as they are stored, counted
// over all of them. A part may be empty.
func (t *Tar) Split(part, parts int) error {
	if parts < 1 || part < 0 || part >= parts {
		return fmt.Errorf("source: there is no part %d of %d: parts count from 0", part, parts)
	}
	t.leave()
	t.from, t.to = 0, len(t.archives)
	_, total := t.Total()
	first, begin, end := int64(0), 0, 0
	for i := range t.archives {
		of := 0
		if first < total { // empty archives behind the last byte go to part 0 if all are, else to the last
			hi, lo := bits.Mul64(uint64(first), uint64(parts))
			quotient, _ := bits.Div64(hi, lo, uint64(total))
			of = int(quotient)
		} else if total > 0 {
			of = parts - 1
		}
		if of < part {
			begin = i + 1
		}
		if of <= part {
			end = i + 1
		}
		first += t.archives[i].info.Size
	}
	t.from, t.to = begin, end
	t.at, t.given = begin, 0
	return nil
}

// Total is the size of the archives, those of the part after Split; how many samples there are is not known.
func (t *Tar) Total() (samples, bytes int64) {
	for i := t.from; i < t.to; i++ {
		bytes += t.archives[i].info.Size
	}
	return 0, bytes
}

// Close closes the archive at hand.
func (t *Tar) Close() error {
	t.leave()
	t.at = t.to
	return nil
}

// clean is a member's name as the key of a sample has it.
func clean(name string) string {
	for strings.HasPrefix(name, "./") {
		name = strings.TrimLeft(name[2:], "/")
	}
	return name
}

// kindName says what a member is that is no regular file.
func kindName(flag byte) string {
	switch flag {
	case tar.TypeLink:
		return "a hard link"
	case tar.TypeSymlink:
		return "a symbolic link"
	case tar.TypeChar, tar.TypeBlock, tar.TypeFifo:
		return "a device or pipe"
	}
	return fmt.Sprintf("a member of type %q", flag)
}
