package parquet

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/andybalholm/brotli"
	"github.com/apache/arrow/go/v17/parquet/compress"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// lz4Raw is the codec LZ4_RAW, LZ4 blocks without a frame. The library has no name for it. The
// library's own codecs panic on bad input and trust the sizes it claims. The ones here decode to
// the size in the page's header, and allocate nothing by what the data claims.
const lz4Raw = compress.Compression(7)

// errLength means that a page does not decode to the length in its header.
var errLength = errors.New("it does not decode to the length that the page's header gives")

// zstds pools decoders, each for one page at a time, in memory no larger than the page.
var zstds = sync.Pool{New: func() any {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecodeAllCapLimit(true),
		zstd.WithDecoderMaxWindow(1<<31))
	if err != nil {
		panic("parquet: " + err.Error()) // cannot happen: the options are constant
	}
	return d
}}

// knownCodec returns an error if decompress does not support the codec.
func knownCodec(codec compress.Compression) error {
	c := compress.Codecs
	switch codec {
	case c.Uncompressed, c.Snappy, c.Gzip, c.Brotli, c.Zstd, c.Lz4, lz4Raw:
		return nil
	case c.Lzo:
		return errors.New("it is compressed with LZO, which this version does not read: write the file again with zstd or snappy")
	}
	return fmt.Errorf("it is compressed with codec number %d, which this version does not know", int(codec))
}

// decompress fills dst from src, which must decode to exactly its length.
func decompress(codec compress.Compression, dst, src []byte) error {
	if len(dst) == 0 && len(src) == 0 { // a data page of version 2 with only nulls
		return nil
	}
	switch codec {
	case compress.Codecs.Snappy:
		n, err := snappy.DecodedLen(src)
		if err != nil || n != len(dst) {
			return errLength
		}
		if len(dst) == 0 {
			return nil
		}
		_, err = snappy.Decode(dst, src)
		return err
	case compress.Codecs.Zstd:
		d := zstds.Get().(*zstd.Decoder)
		defer zstds.Put(d)
		out, err := d.DecodeAll(src, dst[:0:len(dst)])
		if err == nil && len(out) != len(dst) {
			err = errLength
		}
		return err
	case compress.Codecs.Gzip:
		r, err := gzip.NewReader(bytes.NewReader(src))
		if err != nil {
			return err
		}
		return fill(dst, r)
	case compress.Codecs.Brotli:
		return fill(dst, brotli.NewReader(bytes.NewReader(src)))
	case lz4Raw:
		return lz4Block(dst, src)
	case compress.Codecs.Lz4:
		return lz4Hadoop(dst, src)
	}
	return knownCodec(codec)
}

// expands checks that a page with an implausible decoded size decodes to that size, before memory
// is allocated for it. If the format of a codec does not tell, the page is decoded and discarded.
func expands(codec compress.Compression, src []byte, decoded int64) error {
	var most int64
	switch codec {
	case compress.Codecs.Snappy: // a copy of 64 bytes takes 3
		most = 22 * int64(len(src))
	case compress.Codecs.Lz4, lz4Raw:
		most = 255 * int64(len(src))
	case compress.Codecs.Zstd:
		most = zstdMost(src)
	case compress.Codecs.Gzip:
		r, err := gzip.NewReader(bytes.NewReader(src))
		if err != nil {
			return err
		}
		if most, err = io.Copy(io.Discard, io.LimitReader(r, decoded)); err != nil {
			return err
		}
	case compress.Codecs.Brotli:
		var err error
		if most, err = io.Copy(io.Discard, io.LimitReader(brotli.NewReader(bytes.NewReader(src)),
			decoded)); err != nil {
			return err
		}
	}
	if decoded > most {
		return errLength
	}
	return nil
}

// zstdMost returns the maximum decoded size of Zstandard frames, by the headers of their blocks
// (RFC 8878).
func zstdMost(src []byte) (most int64) {
	for len(src) > 0 {
		var h zstd.Header
		if h.Decode(src) != nil {
			return most
		}
		if h.Skippable {
			n := int64(h.HeaderSize) + int64(h.SkippableSize)
			src = src[min(n, int64(len(src))):]
			continue
		}
		src = src[min(h.HeaderSize, len(src)):]
		for last := false; !last; {
			if len(src) < 3 {
				return most
			}
			head := int(src[0]) | int(src[1])<<8 | int(src[2])<<16
			last = head&1 != 0
			size, stored := int64(head>>3), head>>3
			switch head >> 1 & 3 {
			case 1: // one byte, repeated
				stored = 1
			case 2:
				size = 128 << 10
			}
			most += size
			src = src[min(3+stored, len(src)):]
		}
		if h.HasCheckSum {
			src = src[min(4, len(src)):]
		}
	}
	return most
}

// fill reads exactly len(dst) bytes, after which r must end.
func fill(dst []byte, r io.Reader) error {
	if _, err := io.ReadFull(r, dst); err != nil {
		return err
	}
	var more [1]byte
	switch n, err := io.ReadFull(r, more[:]); {
	case n > 0:
		return errLength
	case err != io.EOF:
		return err
	}
	return nil
}

// snappyStream decodes a snappy block while reading it, for pages too large to hold both the stored
// and the decoded bytes.
func snappyStream(dst []byte, r *bufio.Reader) error {
	n, err := binary.ReadUvarint(r)
	if err != nil || n != uint64(len(dst)) {
		return errLength
	}
	number := func(bytes int) (v int, err error) {
		for i := range bytes {
			b, err := r.ReadByte()
			if err != nil {
				return 0, io.ErrUnexpectedEOF
			}
			v |= int(b) << (8 * i)
		}
		return v, nil
	}
	for at := 0; at < len(dst); {
		tag, err := number(1)
		if err != nil {
			return err
		}
		length, offset := tag>>2+1, 0
		switch tag & 3 {
		case 0: // a literal; the length of a long one follows the tag
			if length > 60 {
				if length, err = number(length - 60); err != nil {
					return err
				}
				length++
			}
			if length > len(dst)-at {
				return errLength
			}
			if _, err := io.ReadFull(r, dst[at:at+length]); err != nil {
				return err
			}
			at += length
			continue
		case 1:
			length = 4 + tag>>2&7
			offset, err = number(1)
			offset |= tag >> 5 << 8
		case 2:
			offset, err = number(2)
		default:
			offset, err = number(4)
		}
		if err != nil {
			return err
		}
		if offset == 0 || offset > at || length > len(dst)-at {
			return errors.New("it refers to bytes before its beginning")
		}
		for end := at + length; at < end; { // the source may overlap the destination
			at += copy(dst[at:end], dst[at-offset:at])
		}
	}
	if _, err := r.ReadByte(); err != io.EOF {
		return errLength
	}
	return nil
}

func lz4Block(dst, src []byte) error {
	if len(dst) == 0 && len(src) <= 1 { // an empty block is a zero byte, or nothing
		return nil
	}
	n, err := lz4.UncompressBlock(src, dst)
	if err == nil && n != len(dst) {
		err = errLength
	}
	return err
}

// lz4Hadoop decodes the deprecated codec LZ4: blocks, each preceded by its decoded and its stored
// length as big-endian 32 bits, as Hadoop writes them; or a single block without lengths, as other
// writers do.
func lz4Hadoop(dst, src []byte) error {
	out, in := dst, src
	for len(in) >= 8 {
		raw, stored := binary.BigEndian.Uint32(in), binary.BigEndian.Uint32(in[4:])
		in = in[8:]
		if uint64(raw) > uint64(len(out)) || uint64(stored) > uint64(len(in)) ||
			lz4Block(out[:raw], in[:stored]) != nil {
			break
		}
		out, in = out[raw:], in[stored:]
		if len(in) == 0 && len(out) == 0 {
			return nil
		}
	}
	return lz4Block(dst, src)
}
