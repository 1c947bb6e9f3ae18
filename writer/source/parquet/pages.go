package parquet

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"

	"github.com/apache/arrow/go/v17/arrow/memory"
	pq "github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/compress"
	"github.com/apache/arrow/go/v17/parquet/file"
	"github.com/apache/arrow/go/v17/parquet/schema"
)

// Limits on the memory of a page.
const (
	// maxPageHeader bounds a page's header, which may hold minimum and maximum values.
	maxPageHeader = 16 << 20
	// A page may always decode to freeDecoded, or to maxRatio times its stored size. A page whose
	// header claims more is checked before memory is allocated, and may decode to
	// Options.PageMemory.
	freeDecoded = 64 << 20
	maxRatio    = 32
	// defaultPageMemory is the default of Options.PageMemory.
	defaultPageMemory = 256 << 20
	// largeStored is the stored size above which a page is decoded while it is read, if its codec
	// allows that.
	largeStored = 16 << 20
)

// Page types, as numbered by the format.
const (
	pageData       = 0
	pageDictionary = 2
	pageDataV2     = 3
)

// pageHeader is the part of a page's header that this package uses.
type pageHeader struct {
	kind           int64
	decoded        int64 // uncompressed_page_size
	stored         int64 // compressed_page_size
	crc            uint32
	hasCRC         bool
	described      bool // the header of its type is present
	values         int64
	encoding       int64
	defLevels      int64 // encoding, version 1 only
	repLevels      int64
	nulls, rows    int64
	defLen, repLen int64 // in bytes, version 2 only
	plain          bool  // version 2 without compression
}

// parsePageHeader parses a header at the beginning of p and returns its length. errShort means that
// p does not hold the whole header.
func parsePageHeader(p []byte) (h pageHeader, n int, err error) {
	c := compact{b: p}
	integer := func(dst *int64, kind byte) bool {
		if kind != typeI32 && kind != typeI64 && kind != typeI16 {
			c.fail(errThrift)
			return true
		}
		*dst = c.integer()
		return true
	}
	nested := func(of int64, names ...*int64) bool {
		c.fields(func(id int, kind byte) bool {
			if of == pageDataV2 && id == 7 && (kind == typeTrue || kind == typeFalse) {
				h.plain = kind == typeFalse
				return true
			}
			if id < 1 || id > len(names) || names[id-1] == nil {
				return false
			}
			return integer(names[id-1], kind)
		})
		h.described = h.described || of == h.kind
		return true
	}
	h.kind = -1
	c.fields(func(id int, kind byte) bool {
		switch {
		case id == 1:
			return integer(&h.kind, kind)
		case id == 2:
			return integer(&h.decoded, kind)
		case id == 3:
			return integer(&h.stored, kind)
		case id == 4 && kind == typeI32:
			h.crc, h.hasCRC = uint32(c.integer()), true
			return true
		case id == 5 && kind == typeStruct && h.kind == pageData:
			return nested(pageData, &h.values, &h.encoding, &h.defLevels, &h.repLevels)
		case id == 7 && kind == typeStruct && h.kind == pageDictionary:
			return nested(pageDictionary, &h.values, &h.encoding)
		case id == 8 && kind == typeStruct && h.kind == pageDataV2:
			return nested(pageDataV2, &h.values, &h.nulls, &h.rows, &h.encoding, &h.defLen, &h.repLen)
		}
		return false
	})
	return h, c.off, c.err
}

// pageBuffers are the reusable buffers for the pages of a column. Values point into them until the
// next page.
type pageBuffers struct {
	data, dictionary, plain []byte
	stored                  *[]byte // shared by all columns, because compressed bytes are needed briefly
}

// resize returns a buffer of n bytes with undefined content. A small one gets spare room for the
// next page.
func resize(buf []byte, n int) []byte {
	const small = 8 << 20
	switch {
	case cap(buf) >= n:
		return buf[:n]
	case n < small:
		return make([]byte, n, n+n/8)
	}
	return make([]byte, n)
}

// pageReader passes the checked pages of one column chunk to the library's column reader.
type pageReader struct {
	col    *schema.Column
	stream pq.BufferedReader
	left   int64 // stored bytes not yet read
	codec  compress.Compression
	values int64 // values not yet read, by the footer
	most   int64 // maximum decoded size of a page, by the footer
	memory int64 // Options.PageMemory
	// mistaken reports that pages of version 2 are compressed where their headers deny it.
	mistaken bool
	bufs     *pageBuffers

	dictionary int // values in the dictionary, -1 if there is none yet
	inPage     int64
	hold       bool // keep this page: its values are in use
	cur        file.Page
	pages      int
	last       []byte // last value of the previous page, for encodings with shared prefixes
	err        error
}

var _ file.PageReader = (*pageReader)(nil)

// SetMaxPageHeaderSize has no effect: the limit is constant.
func (p *pageReader) SetMaxPageHeaderSize(int) {}

// Reset fails: a pageReader is used once.
func (p *pageReader) Reset(pq.BufferedReader, int64, compress.Compression, *file.CryptoContext) {
	p.err = errors.New("the pages of a column cannot be read twice")
}

func (p *pageReader) Page() file.Page { return p.cur }
func (p *pageReader) Err() error      { return p.err }

// Next reads the next page that has values.
func (p *pageReader) Next() bool {
	if p.hold {
		return false
	}
	p.cur = nil
	for p.err == nil && p.values > 0 {
		if p.left == 0 {
			p.err = fmt.Errorf("it ends with %d values missing", p.values)
			break
		}
		h, err := p.header()
		if err == nil {
			err = p.check(&h)
		}
		if err == nil {
			err = p.read(&h)
		}
		if err != nil {
			p.err = fmt.Errorf("page %d: %w", p.pages, err)
			break
		}
		p.pages++
		if p.cur != nil {
			return true
		}
	}
	return false
}

func (p *pageReader) header() (h pageHeader, err error) {
	for size := int64(256); ; size *= 4 {
		view, err := p.stream.Peek(int(min(size, p.left)))
		if err != nil && err != io.EOF {
			return h, err
		}
		h, n, err := parsePageHeader(view)
		if errors.Is(err, errShort) && size < p.left && size < maxPageHeader {
			continue
		}
		if err != nil {
			return h, fmt.Errorf("its header cannot be read: %w", err)
		}
		_, err = p.stream.Discard(n)
		p.left -= int64(n)
		return h, err
	}
}

// check compares a header with the footer, before it causes an allocation.
func (p *pageReader) check(h *pageHeader) error {
	h.plain = h.plain && !(p.mistaken && h.kind == pageDataV2)
	known := h.kind == pageData || h.kind == pageDictionary || h.kind == pageDataV2
	switch {
	case h.stored < 0 || h.stored > p.left:
		return fmt.Errorf("its header says %d stored bytes, %d are left in its column chunk", h.stored, p.left)
	case h.decoded < 0 || h.decoded > math.MaxInt32 || h.decoded > p.most:
		return fmt.Errorf("its header says %d decoded bytes, the footer %d for the whole column chunk", h.decoded,
			p.most)
	case h.decoded > p.room(h.stored):
		return tooLarge(h.decoded, p.room(h.stored))
	case known && !h.described:
		return errors.New("its header lacks the part for its type")
	case h.values < 0 || h.encoding < 0:
		return errors.New("its header has a negative number")
	case h.kind != pageDictionary && h.values > p.values:
		return fmt.Errorf("its header says %d values, the footer leaves %d for it", h.values, p.values)
	case h.defLen < 0 || h.repLen < 0 || h.defLen+h.repLen > min(h.decoded, h.stored):
		return errors.New("its header claims more bytes of levels than the page has")
	case (h.plain || p.codec == compress.Codecs.Uncompressed) && known && h.stored != h.decoded:
		return fmt.Errorf("its header says %d stored and %d decoded bytes of a page that is not compressed", h.stored,
			h.decoded)
	}
	return nil
}

// tooLarge returns the error of a page that needs too much memory.
func tooLarge(decoded, room int64) error {
	return fmt.Errorf("%w: it decodes to %d bytes, and %d are allowed", ErrPageMemory, decoded, room)
}

// likely returns the decoded size that is plausible for stored bytes.
func likely(stored int64) int64 { return max(freeDecoded, maxRatio*stored) }

// room returns the maximum decoded size for stored bytes.
func (p *pageReader) room(stored int64) int64 { return max(p.memory, likely(stored)) }

// read reads a page.
func (p *pageReader) read(h *pageHeader) error {
	buf := &p.bufs.data
	switch h.kind {
	case pageDictionary:
		buf = &p.bufs.dictionary
	case pageData, pageDataV2:
	default: // an index page or an unknown type, which no value depends on
		n, err := p.stream.Discard(int(h.stored))
		p.left -= int64(n)
		return err
	}
	stored, err := p.body(h)
	if err != nil {
		return err
	}
	*buf = resize(*buf, int(h.decoded))
	data := *buf
	if err := p.decode(h, data, stored); err != nil {
		return err
	}
	if h.kind == pageDictionary {
		return p.dictionaryPage(h, data)
	}
	if h.values == 0 {
		return nil
	}
	return p.dataPage(h, data)
}

// compressed reports whether the page's values are compressed. Levels of version 2 never are.
func (p *pageReader) compressed(h *pageHeader) bool {
	return p.codec != compress.Codecs.Uncompressed && !h.plain
}

// streamed reports whether the page is decoded while it is read.
func (p *pageReader) streamed(h *pageHeader) bool {
	return p.compressed(h) && p.codec == compress.Codecs.Snappy && h.stored > largeStored
}

// body reads the stored bytes of a compressed page, and checks a page whose claimed size is
// implausible. It returns nil for a page that is read directly into its decoded buffer.
func (p *pageReader) body(h *pageHeader) (stored []byte, err error) {
	if !p.compressed(h) || p.streamed(h) {
		return nil, nil
	}
	*p.bufs.stored = resize(*p.bufs.stored, int(h.stored))
	stored = *p.bufs.stored
	if err := p.take(h, stored); err != nil {
		return nil, err
	}
	if h.decoded > likely(h.stored) {
		levels := int(h.defLen + h.repLen)
		if err := expands(p.codec, stored[levels:], h.decoded-int64(levels)); err != nil {
			return nil, fmt.Errorf("it does not decompress: %w", err)
		}
	}
	return stored, nil
}

// take reads a page's bytes and compares their checksum.
func (p *pageReader) take(h *pageHeader, stored []byte) error {
	n, err := io.ReadFull(p.stream, stored)
	p.left -= int64(n)
	if err != nil {
		return err
	}
	if h.hasCRC && crc32.ChecksumIEEE(stored) != h.crc {
		return errors.New("its checksum does not match its bytes")
	}
	return nil
}

// decode fills data from stored, or by reading.
func (p *pageReader) decode(h *pageHeader, data, stored []byte) error {
	levels := int(h.defLen + h.repLen) // levels of version 2
	switch {
	case p.streamed(h):
		return p.decodeStream(h, data, levels)
	case !p.compressed(h):
		return p.take(h, data)
	}
	copy(data[:levels], stored[:levels])
	if err := decompress(p.codec, data[levels:], stored[levels:]); err != nil {
		return fmt.Errorf("it does not decompress: %w", err)
	}
	return nil
}

// decodeStream decodes a large page without holding its stored bytes.
func (p *pageReader) decodeStream(h *pageHeader, data []byte, levels int) error {
	sum := crc32.NewIEEE()
	stored := &io.LimitedReader{R: p.stream, N: h.stored}
	r := bufio.NewReaderSize(io.TeeReader(stored, sum), 64<<10)
	_, err := io.ReadFull(r, data[:levels])
	if err == nil {
		err = snappyStream(data[levels:], r)
	}
	p.left -= h.stored - stored.N
	if err != nil {
		return fmt.Errorf("it does not decompress: %w", err)
	}
	if h.hasCRC && sum.Sum32() != h.crc {
		return errors.New("its checksum does not match its bytes")
	}
	return nil
}

func (p *pageReader) dictionaryPage(h *pageHeader, data []byte) error {
	each := int64(fixedSize(p.col))
	if p.col.PhysicalType() == pq.Types.ByteArray {
		each = 4
	}
	switch {
	case p.dictionary >= 0:
		return errors.New("it is a second dictionary")
	case each == 0:
		return fmt.Errorf("it is a dictionary of type %v", p.col.PhysicalType())
	case h.values > int64(len(data))/each:
		return fmt.Errorf("its header says %d values, its %d bytes hold fewer", h.values, len(data))
	}
	p.dictionary = int(h.values)
	p.cur = file.NewDictionaryPage(memory.NewBufferBytes(data), int32(h.values), pq.Encoding(h.encoding))
	return nil
}

// dataPage checks levels and indexes, and converts the encodings that the library does not decode
// safely to plain values.
func (p *pageReader) dataPage(h *pageHeader, data []byte) error {
	levels, values, err := p.levels(h, data)
	if err != nil {
		return err
	}
	encoding := pq.Encoding(h.encoding)
	rest := data[levels:]
	switch encoding {
	case pq.Encodings.PlainDict, pq.Encodings.RLEDict:
		if p.dictionary < 0 {
			return errors.New("it refers to a dictionary, and there is none before it")
		}
		if err := checkIndexes(rest, values, p.dictionary); err != nil {
			return err
		}
		if values > 0 && rest[0] == 0 {
			data = appendZeroIndexes(append(p.bufs.plain[:0], data[:levels]...), values)
			p.bufs.plain = data
		}
	default:
		out, done, err := plain(append(p.bufs.plain[:0], data[:levels]...), rest, encoding, p.col, values,
			p.room(h.stored), &p.last)
		if err != nil {
			return err
		}
		if done {
			p.bufs.plain, data, encoding = out, out, pq.Encodings.Plain
		}
	}
	p.values -= h.values
	p.inPage = h.values
	buf := memory.NewBufferBytes(data)
	if h.kind == pageDataV2 {
		p.cur = file.NewDataPageV2(buf, int32(h.values), int32(h.nulls), int32(h.rows), encoding, int32(h.defLen),
			int32(h.repLen), int32(len(data)), false)
		return nil
	}
	p.cur = file.NewDataPageV1(buf, int32(h.values), encoding, pq.Encoding(h.defLevels), pq.Encoding(h.repLevels),
		int32(len(data)))
	return nil
}

// levels checks the levels at the beginning of a page. It returns their length and the number of
// values that are not null.
func (p *pageReader) levels(h *pageHeader, data []byte) (length, values int, err error) {
	n := int(h.values)
	values = n
	maxRep, maxDef := p.col.MaxRepetitionLevel(), p.col.MaxDefinitionLevel()
	if h.kind == pageDataV2 {
		if maxRep > 0 {
			_, err = checkLevels(data[:h.repLen], maxRep, n)
		}
		if maxDef > 0 && err == nil {
			values, err = checkLevels(data[h.repLen:h.repLen+h.defLen], maxDef, n)
		}
		return int(h.defLen + h.repLen), values, err
	}
	for _, l := range []struct {
		most     int16
		encoding int64
	}{{maxRep, h.repLevels}, {maxDef, h.defLevels}} {
		if l.most == 0 {
			continue
		}
		if pq.Encoding(l.encoding) != pq.Encodings.RLE {
			return 0, 0, fmt.Errorf("its levels are encoded as %v, which is obsolete since 2014: write the file again",
				pq.Encoding(l.encoding))
		}
		rest := data[length:]
		if len(rest) < 4 || uint64(binary.LittleEndian.Uint32(rest)) > uint64(len(rest)-4) {
			return 0, 0, errLevels
		}
		size := int(binary.LittleEndian.Uint32(rest))
		if values, err = checkLevels(rest[4:4+size], l.most, n); err != nil {
			return 0, 0, err
		}
		length += 4 + size
	}
	if maxDef == 0 {
		values = n
	}
	return length, values, nil
}
