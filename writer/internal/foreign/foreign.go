// Package foreign makes the index of a tar that another tool wrote, which stays as it is.
package foreign

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/codec"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/internal/format/tarblock"
	"github.com/shardtool/shardtool/internal/input/fused"
	"github.com/shardtool/shardtool/objstore"
)

// Archive describes an archive.
type Archive struct {
	Index   metadata.IndexBuilder
	Content format.Hash // identity of its blocks
	Samples int
	End     int64 // offset of the end of the last block
	Fused   fused.Watch
}

// Read reads an archive of that many bytes, readSize at a time. full reports whether a block of
// that many bytes and samples is complete. Errors have the offset in the archive.
func Read(ctx context.Context, obj objstore.Object, size int64, readSize int,
	full func(size int64, samples int) bool) (*Archive, error) {
	in := bufio.NewReaderSize(io.NewSectionReader(readerAt{ctx, obj}, 0, size),
		max(readSize, tarblock.MaxForeignHeaders+2*tarRecord))
	t := &foreignTar{ctx: ctx, in: in, size: size, full: full, names: map[string]string{}, keys: map[string]int64{}}
	if err := t.read(); err != nil {
		return nil, err
	}
	t.Content, t.End = t.hasher.Sum(), t.block.begin
	return &t.Archive, nil
}

// foreignTar reads an archive from front to back and collects its index.
//
//	| headers | payload, padding | … | headers | payload, padding | … | end of archive |
//	|<---------- block ------------->|<----------- block ------------>|
//
// A block ends before the first member of a sample. Entries that are not regular files, such as
// directories, belong to the block around them.
type foreignTar struct {
	Archive
	ctx   context.Context
	in    *bufio.Reader // with room for all headers of a member
	off   int64         // of what in reads next
	size  int64
	block openBlock
	full  func(size int64, samples int) bool

	sample foreignSample     // whose members are being read
	names  map[string]string // of fields, each once in memory
	keys   map[string]int64  // and the offsets of their first members
	hasher metadata.ShardHasher
}

// readerAt is an object as an io.ReaderAt.
type readerAt struct {
	ctx context.Context
	obj objstore.Object
}

func (r readerAt) ReadAt(p []byte, off int64) (int, error) {
	if err := r.obj.ReadAt(r.ctx, p, off); err != nil {
		return 0, err
	}
	return len(p), nil
}

// openBlock is the block that members are being added to.
type openBlock struct {
	begin int64 // its offset; after the last block, that block's end
	open  int64 // its bytes so far
	sum   hash.Hash
	row   format.Row // being filled
	rows  []format.Row
	count uint32 // samples
}

// foreignSample is a sample and the offsets of its payloads in the block.
type foreignSample struct {
	key    string
	fields []format.FieldSize
	places []uint64
}

const tarRecord = 512

// read reads the archive.
func (t *foreignTar) read() error {
	t.newBlock()
	for {
		if err := t.ctx.Err(); err != nil {
			return context.Cause(t.ctx)
		}
		e, err := t.entry()
		if err != nil {
			return err
		}
		if e.Type == 0 {
			break
		}
	}
	if err := t.endSample(); err != nil {
		return err
	}
	t.endBlock()
	return t.checkEnd()
}

// entry reads the next entry. At the end of the archive its Type is 0, and the end is not consumed.
func (t *foreignTar) entry() (e tarblock.ForeignEntry, err error) {
	need := tarRecord
	for need > 0 {
		p, err := t.in.Peek(need)
		if err != nil && err != io.EOF {
			return e, err
		}
		if len(p) == 0 {
			return e, format.At(t.off, fmt.Errorf("%w: the archive has no end: it was cut between two members: %w",
				format.ErrCorrupt, io.ErrUnexpectedEOF))
		}
		if len(p) < need {
			return e, format.At(t.off, fmt.Errorf("%w: the archive ends inside a header: it was cut: %w",
				format.ErrCorrupt, io.ErrUnexpectedEOF))
		}
		if e, need, err = tarblock.ReadForeignEntry(p); err != nil {
			return e, moved(err, t.off)
		}
	}
	switch e.Type {
	case 0:
		return e, nil
	case '0':
		return e, t.member(&e)
	case '5':
		t.take(int(e.Payload))
		return e, nil
	}
	return e, format.At(t.off,
		fmt.Errorf("%w: member %.256q is %s, and only regular files can be indexed: extract the archive, and pack the folder",
			format.ErrName, e.Name, cmp.Or(tarblock.TypeNames[e.Type], fmt.Sprintf("of type %q", e.Type))))
}

// moved turns an offset in an entry into one in the archive.
func moved(err error, by int64) error {
	var at *format.PosError
	if errors.As(err, &at) {
		return format.At(by+max(at.Offset, 0), at.Err)
	}
	return format.At(by, err)
}

// member reads a regular file.
func (t *foreignTar) member(e *tarblock.ForeignEntry) error {
	key, field := format.SplitName(e.Name)
	name, ok := t.names[string(field)]
	if !ok {
		if err := format.CheckField(string(field)); err != nil {
			return format.At(t.off, err)
		}
		name = string(field)
		t.names[name] = name
	}
	start := t.off
	if t.sample.key != string(key) || len(t.sample.fields) == 0 {
		if err := t.endSample(); err != nil {
			return err
		}
		if t.block.open > 0 && t.block.count > 0 && t.full(t.block.open, int(t.block.count)) {
			t.endBlock()
		}
		if err := t.beginSample(string(key), e); err != nil {
			return err
		}
	}
	if i := slices.IndexFunc(t.sample.fields, func(f format.FieldSize) bool { return f.Name == name }); i >= 0 {
		return format.At(start, fmt.Errorf("%w field %.256q in sample %.256q: rename a member, or pack the archive",
			format.ErrDuplicate, field, key))
	}
	end := e.Payload + e.Size + (tarRecord-e.Size%tarRecord)%tarRecord
	if end < 0 || end > t.size-start {
		return format.At(start, fmt.Errorf("%w: member %.256q of %d bytes ends beyond the archive: it was cut: %w",
			format.ErrCorrupt, e.Name, e.Size, io.ErrUnexpectedEOF))
	}
	t.sample.fields = append(t.sample.fields, format.FieldSize{Name: name, Size: e.Size})
	t.sample.places = append(t.sample.places, uint64(start+e.Payload-t.block.begin))
	for left := end; left > 0; {
		n := int(min(left, int64(t.in.Size())))
		if _, err := t.in.Peek(n); err != nil {
			return err
		}
		t.take(n)
		left -= int64(n)
	}
	return nil
}

// beginSample begins a sample, whose key must be new.
func (t *foreignTar) beginSample(key string, e *tarblock.ForeignEntry) error {
	if err := format.CheckKey(key); err != nil {
		return format.At(t.off, fmt.Errorf("member %.256q: %w", e.Name, err))
	}
	if first, twice := t.keys[key]; twice {
		return format.At(t.off, fmt.Errorf("%w key %.256q: member %.256q belongs to the sample that begins at %d, with others between: pack the archive sorted by name",
			format.ErrDuplicate, key, e.Name, first))
	}
	t.keys[key] = t.off
	t.sample.key = key
	return nil
}

// endSample adds the sample to the block.
func (t *foreignTar) endSample() error {
	s := &t.sample
	if len(s.fields) == 0 {
		return nil
	}
	for i := 1; i < len(s.fields); i++ { // they are few, and mostly in order
		for j := i; j > 0 && s.fields[j].Name < s.fields[j-1].Name; j-- {
			s.fields[j], s.fields[j-1] = s.fields[j-1], s.fields[j]
			s.places[j], s.places[j-1] = s.places[j-1], s.places[j]
		}
	}
	t.Fused.Sample()
	for _, f := range s.fields {
		t.Fused.File(s.key, f.Name)
	}
	if err := t.Index.AddForeign(s.key, s.fields, s.places); err != nil {
		return err
	}
	t.Samples++
	t.block.count++
	s.key, s.fields, s.places = "", s.fields[:0], s.places[:0]
	return nil
}

// take moves n bytes, which were read, into the block.
func (t *foreignTar) take(n int) {
	p, _ := t.in.Peek(n)
	t.off += int64(n)
	t.block.sum.Write(p)
	t.block.open += int64(n)
	for len(p) > 0 {
		k := min(len(p), format.MaxFrame-int(t.block.row.Decoded))
		t.block.row.CRC = codec.UpdateChecksum(t.block.row.CRC, p[:k])
		t.block.row.Decoded += uint32(k)
		if p = p[k:]; t.block.row.Decoded == format.MaxFrame {
			t.endRow()
		}
	}
	_, _ = t.in.Discard(n)
}

func (t *foreignTar) endRow() {
	if t.block.row.Decoded > 0 {
		t.block.row.Stored, t.block.row.Codec = t.block.row.Decoded, format.CodecBytes
		t.block.rows = append(t.block.rows, t.block.row)
	}
	t.block.row = format.Row{}
}

func (t *foreignTar) newBlock() {
	t.block = openBlock{begin: t.block.begin, sum: sha256.New()}
}

// endBlock closes the block after its last sample.
func (t *foreignTar) endBlock() {
	if t.block.count > 0 {
		t.endRow()
		t.block.rows[0].Samples = t.block.count
		for _, r := range t.block.rows {
			t.Index.AddRow(r)
		}
		t.hasher.Add(format.Hash(t.block.sum.Sum(nil)))
		t.block.begin += t.block.open
	}
	t.newBlock()
}

// checkEnd checks what follows the last entry: only zeros, and at least the two records that end an
// archive.
func (t *foreignTar) checkEnd() error {
	if t.size-t.block.begin > maxForeignEnd {
		return format.At(t.off, fmt.Errorf("%w: %d bytes after the last member", format.ErrTooLarge,
			t.size-t.block.begin))
	}
	if t.size-t.off < 2*tarRecord {
		return format.At(t.off, fmt.Errorf("%w: the archive ends inside its end marker: it was cut: %w",
			format.ErrCorrupt, io.ErrUnexpectedEOF))
	}
	for {
		if _, err := t.in.Peek(1); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		rest, _ := t.in.Peek(t.in.Buffered())
		for i, c := range rest {
			if c != 0 {
				return format.At(t.off+int64(i),
					fmt.Errorf("%w: data follows the end of the archive: archives were joined; index or pack them one by one", format.ErrCorrupt))
			}
		}
		_, _ = t.in.Discard(len(rest))
		t.off += int64(len(rest))
	}
}

// maxForeignEnd bounds what follows the last block (SPEC 5).
const maxForeignEnd = 1 << 30
