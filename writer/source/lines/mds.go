package lines

import (
	"cmp"
	"context"
	"crypto/md5"  //nolint:gosec // the index chooses it
	"crypto/sha1" //nolint:gosec
	"crypto/sha256"
	"crypto/sha512"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"

	"github.com/shardtool/shardtool/hint"
	"github.com/shardtool/shardtool/internal/input/mds"
	"github.com/shardtool/shardtool/internal/input/stream"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source/internal/rows"
)

// mdsShard stands in place of the separator of cells for shards of MosaicML Streaming: the number n
// of samples as u32, n+1 offsets as u32, the columns as JSON up to the first offset, and the
// samples. A sample is the sizes, as u32, of its values that have no fixed size, and all values.
const mdsShard = 0xfd

// maxSamples bounds the offsets of a shard. The library makes shards of 64 MiB by default, with 5
// bytes a sample at least.
const maxSamples = 1 << 24

// indexes are the indexes beside the shards, which are read once.
type indexes struct {
	mu    sync.Mutex
	known map[string]func() (map[string]*mds.Shard, error)
}

// of returns the shards in the index of a folder, by their names below it. There are none if there
// is no index of MDS shards.
func (x *indexes) of(ctx context.Context, store objstore.Store, dir string) (map[string]*mds.Shard, error) {
	place := store.String() + "\x00" + dir
	x.mu.Lock()
	if x.known == nil {
		x.known = map[string]func() (map[string]*mds.Shard, error){}
	}
	read := x.known[place]
	if read == nil {
		read = sync.OnceValues(func() (map[string]*mds.Shard, error) {
			list, err := mds.ReadIndex(ctx, store, path.Join(dir, mds.IndexName))
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, mds.ErrOther) || errors.Is(err, mds.ErrNone) {
				return nil, nil
			}
			byName := map[string]*mds.Shard{}
			for i := range list {
				byName[list[i].Raw.Name] = &list[i]
				if zip := list[i].Zip.Name; zip != "" {
					byName[zip] = &list[i]
				}
			}
			return byName, err
		})
		x.known[place] = read
	}
	x.mu.Unlock()
	return read()
}

// surveyShard sets the columns of a shard: by the index in its folder or the one above, else by its
// own beginning.
func (f *textFile) surveyShard(ctx context.Context, obj objstore.Object, known *indexes) error {
	for dir, below := path.Dir(f.Name), path.Base(f.Name); f.shard == nil; {
		shards, err := known.of(ctx, f.Store, dir)
		if err != nil {
			return err
		}
		f.shard = shards[below]
		if dir == "." || strings.Contains(below, "/") {
			break
		}
		dir, below = path.Dir(dir), path.Base(dir)+"/"+below
	}
	if f.shard == nil {
		columns, err := f.shardColumns(ctx, obj)
		if err != nil {
			return err
		}
		f.shard = &mds.Shard{Columns: columns, Samples: -1}
	} else {
		stored := f.shard.Raw
		if f.coding != stream.Plain {
			stored = f.shard.Zip
		}
		if stored.Size != f.Info.Size {
			return corruptf("it has %d bytes, and its index.json states %d: it is cut off, or was replaced; fetch it again", f.Info.Size, stored.Size)
		}
	}
	for _, c := range f.shard.Columns {
		f.header = append(f.header, c.Name)
	}
	return nil
}

// shardColumns reads the beginning of a shard.
func (f *textFile) shardColumns(ctx context.Context, obj objstore.Object) ([]mds.Column, error) {
	in, err := stream.Open(ctx, obj, f.Info.Size, false, f.coding, 0)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	cut := func(err error) error {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return corruptf("it is cut off: it ends before the columns of an MDS shard are described")
		}
		return err
	}
	var lead [8]byte
	if _, err := io.ReadFull(in, lead[:]); err != nil {
		return nil, cut(err)
	}
	n, begin := binary.LittleEndian.Uint32(lead[:]), int64(binary.LittleEndian.Uint32(lead[4:]))
	size, err := configSize(n, begin)
	if err != nil {
		return nil, err
	}
	if _, err := io.CopyN(io.Discard, in, 4*int64(n)); err != nil {
		return nil, cut(err)
	}
	text, err := io.ReadAll(io.LimitReader(in, size)) // grows as bytes arrive
	if err == nil && int64(len(text)) < size {
		err = io.EOF
	}
	if err != nil {
		return nil, cut(err)
	}
	return mds.DecodeConfig(text)
}

// configSize returns the length of the description between n+1 offsets and the first sample.
func configSize(n uint32, begin int64) (int64, error) {
	if n > maxSamples {
		return 0, corruptf("it states %d samples, and shards of %d are read at most: it is damaged, or no MDS shard", n,
			maxSamples)
	}
	size := begin - 8 - 4*int64(n)
	if size < 0 || size > mds.MaxConfig {
		return 0, corruptf("its first sample is at byte %d, and %d offsets are stated before it: it is damaged, or no MDS shard", begin, int64(n)+1)
	}
	return size, nil
}

// checkEncodings refuses wanted columns that cannot become fields.
func (p *plan) checkEncodings(files []*textFile) error {
	var last *mds.Shard
	for _, f := range files {
		if f.shard == nil || last != nil && &last.Columns[0] == &f.shard.Columns[0] {
			continue
		}
		last = f.shard
		var others []string
		var bad *mds.Column
		for i, c := range last.Columns {
			if c.Kind != mds.Pickle && c.Kind != mds.Unknown {
				others = append(others, c.Name)
			} else if bad == nil && p.Wanted(c.Name) {
				bad = &last.Columns[i]
			}
		}
		if bad == nil {
			continue
		}
		what := fmt.Sprintf("has the encoding %q, which this program does not know", bad.Text)
		if bad.Kind == mds.Pickle {
			what = "is pickled (pkl), and reading it would run whatever code is in it"
		}
		instead := "write the samples with shardtool.Writer, as docs/mosaicml.md shows"
		err := hint.At(f.Path, writer.Optionf("columns", "%s %s: %s", quoted(bad.Name), what, instead))
		if len(others) > 0 {
			err = hint.With(err, hint.Set("columns", strings.Join(others[:min(len(others), 10)], ","), "takes others"))
		}
		return err
	}
	return nil
}

// shardCut is the state of cutting a shard.
type shardCut struct {
	of      *mds.Shard
	offsets []uint32 // from the next sample on; nil before the beginning was read
	whole   int64    // bytes of the decoded shard, -1 if not known
	algo    string   // of sum
	sum     hash.Hash
}

// sums are the algorithms whose checksums are verified, quick ones first.
var sums = []struct {
	name string
	make func() hash.Hash
}{
	{"xxh64", func() hash.Hash { return xxhash.New() }}, {"sha1", sha1.New}, {"sha256", sha256.New}, {"sha224", sha256.New224}, {"sha512", sha512.New},
	{"sha384", sha512.New384}, {"md5", md5.New},
}

// cutShard prepares a cutter for a shard.
func (f *textFile) cutShard(u *cutter) {
	s := &shardCut{of: f.shard, whole: -1}
	if f.coding == stream.Plain {
		s.whole = f.Info.Size
	} else if s.of.Samples >= 0 {
		s.whole = s.of.Raw.Size
	}
	for _, a := range sums {
		if s.sum == nil && s.of.Raw.Hashes[a.name] != "" {
			s.algo, s.sum = a.name, a.make()
			u.in = io.TeeReader(u.in, s.sum)
		}
	}
	u.shard = s
}

// head reads the offsets of a shard. It returns false if it needs more bytes.
func (u *cutter) head() (bool, error) {
	w, s := u.buf[u.lo:], u.shard
	if len(w) >= 8 {
		n, begin := binary.LittleEndian.Uint32(w), int64(binary.LittleEndian.Uint32(w[4:]))
		size, err := configSize(n, begin)
		if err != nil {
			return false, err
		}
		if s.of.Samples >= 0 && int64(n) != s.of.Samples {
			return false, corruptf("it states %d samples, and its index.json %d", n, s.of.Samples)
		}
		if int64(len(w)) >= begin {
			s.offsets = make([]uint32, n+1)
			last := uint32(0)
			for i := range s.offsets {
				at := binary.LittleEndian.Uint32(w[4+4*i:])
				if at <= last {
					return false, corruptf("sample %d ends at byte %d, and begins at %d", i-1, at, last)
				}
				s.offsets[i], last = at, at
			}
			if s.whole >= 0 && int64(last) != s.whole {
				return false, corruptf("its last sample ends at byte %d, and it has %d: it is cut off, or damaged",
					last, s.whole)
			}
			u.take(nil, int(begin-size)+int(size))
			return true, nil
		}
	}
	if u.eof {
		return false, corruptf("it is cut off: it ends before the first sample")
	}
	return false, nil
}

// samples cuts whole samples. It returns false if there is none yet.
func (u *cutter) samples(c *chunk) (bool, error) {
	s := u.shard
	if s.offsets == nil {
		return u.head()
	}
	c.place = u.at
	w, at, pos := u.buf[u.lo:], u.at, 0
	dropped := at.off < u.from
	for len(s.offsets) > 1 && pos < max(u.size, 1) && dropped == (at.off < u.from) {
		size := int(s.offsets[1] - s.offsets[0])
		if size > u.limit {
			return false, fmt.Errorf("sample %d: %w", at.row, tooLongError(u.limit))
		}
		if len(w)-pos < size {
			if u.eof {
				return false, corruptf("sample %d is cut off: the file ends in it", at.row)
			}
			break
		}
		if !dropped {
			c.spans = append(c.spans, span{begin: pos, end: pos + size, line: at.line, row: at.row, lines: 1})
		}
		s.offsets = s.offsets[1:]
		at.off, at.line, at.row, pos = at.off+int64(size), at.line+1, at.row+1, pos+size
	}
	if len(s.offsets) == 1 && len(w) > pos {
		return false, corruptf("bytes follow the last sample")
	}
	return u.took(c, pos, at), nil
}

// shardEnd checks a shard after its last byte.
func (u *cutter) shardEnd() error {
	s := u.shard
	switch {
	case s.offsets == nil:
		return corruptf("it is empty: it is not an MDS shard")
	case len(s.offsets) > 1:
		return corruptf("sample %d is cut off: the file ends before it", u.at.row)
	case s.sum == nil:
		return io.EOF
	}
	if got, want := hex.EncodeToString(s.sum.Sum(nil)), s.of.Raw.Hashes[s.algo]; !strings.EqualFold(got, want) {
		return corruptf("its %s is %s, and its index.json states %.200s: it is damaged; fetch it again", s.algo, got,
			want)
	}
	return io.EOF
}

// mdsSample parses a sample.
func (p *parser) mdsSample(c *chunk, b []byte) error {
	p.open(c.of)
	columns := c.of.shard.Columns
	lead := int64(0)
	for i := range columns {
		if columns[i].Size == 0 {
			lead += 4
		}
	}
	if lead > int64(len(b)) {
		return corruptf("it has %d bytes, and the sizes of its values take %d", len(b), lead)
	}
	sizes, rest := b[:lead], b[lead:]
	for i := range columns {
		size := columns[i].Size
		if size == 0 {
			size, sizes = int64(binary.LittleEndian.Uint32(sizes)), sizes[4:]
		}
		if size > int64(len(rest)) {
			return corruptf("column %s: a value of %d bytes is stated, and %d are left", quoted(columns[i].Name), size,
				len(rest))
		}
		v := rest[:size:size]
		rest = rest[size:]
		if col := p.cells[i]; col.Wanted {
			if err := p.mdsValue(c, col, &columns[i].Encoding, v); err != nil {
				return fmt.Errorf("column %s: %w", quoted(col.Name), err)
			}
		}
	}
	if len(rest) > 0 {
		return corruptf("%d bytes follow its last value", len(rest))
	}
	return nil
}

// mdsValue sets the value of a column. The images of a list become fields of their own.
func (p *parser) mdsValue(c *chunk, col *column, e *mds.Encoding, b []byte) error {
	if e.List {
		ext := extJPEG
		if e.Kind != mds.JPEG {
			ext = extPNG
		}
		return e.Elements(b, func(i int, b []byte) error {
			v, err := c.image(e, b)
			if err != nil || !col.Field {
				return err
			}
			return p.set(p.part(col, i, ext), v)
		})
	}
	v := rows.Cell{B: b}
	var err error
	switch e.Kind {
	case mds.Str, mds.Decimal:
		if v.Kind = rows.Text; !utf8.Valid(b) {
			return corruptf("it is not UTF-8")
		}
	case mds.JSON:
		v.Kind = rows.Object
	case mds.Bytes:
		v.Kind = rows.Bytes
	case mds.Integer, mds.Float:
		begin := len(c.Data)
		c.Data = e.AppendNumber(c.Data, b)
		v.B = c.Since(begin)
		if v.Kind = rows.Digits; e.Kind == mds.Float {
			v.Kind = rows.Number
		}
	case mds.Digits:
		if v.Kind = rows.Digits; numberWord(b) == "txt" || strings.ContainsAny(string(b), ".eE") {
			return corruptf("%.40q is no integer", b)
		}
	case mds.Fraction:
		v.Kind = rows.Number
		if _, err := strconv.ParseFloat(string(b), 64); err != nil && !errors.Is(err, strconv.ErrRange) {
			return corruptf("%.40q is no number", b)
		}
	case mds.NDArray:
		begin := len(c.Data)
		if c.Data, err = e.AppendArray(c.Data, b); err == nil {
			v = rows.Cell{Kind: rows.Array, B: c.Since(begin)}
		}
	default:
		v, err = c.image(e, b)
	}
	return cmp.Or(err, p.set(col, v))
}

// image returns a file of an image, or of pixels.
func (c *chunk) image(e *mds.Encoding, b []byte) (v rows.Cell, err error) {
	switch e.Kind {
	case mds.JPEG:
		return rows.Cell{Kind: rows.JPEG, B: b}, nil
	case mds.PNG:
		return rows.Cell{Kind: rows.PNG, B: b}, nil
	}
	begin := len(c.Data)
	c.Data, err = mds.AppendPNG(c.Data, b)
	return rows.Cell{Kind: rows.PNG, B: c.Since(begin)}, err
}

// part returns the column of one image of a list.
func (p *parser) part(of *column, i int, ext extension) *column {
	name := of.Name + "\x00" + strconv.Itoa(i) // no column has it
	c := p.columns[name]
	if c == nil {
		c = &column{Column: rows.Column{Name: of.Name, Base: of.Base + "." + strconv.Itoa(i) + "." + extensions[ext],
			Field: true}, of: p}
		c.Form = c
		p.columns[name] = c
	}
	return c
}
