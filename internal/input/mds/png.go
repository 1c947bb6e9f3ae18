package mds

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/klauspost/compress/zlib"
)

// modes are the modes of Pillow's images that PNG has: its type of colour, the bits of a sample,
// and the samples of a pixel (PNG, third edition, 11.2.1). image/png would drop an alpha channel
// that is opaque.
var modes = map[string]struct{ colour, bits, samples byte }{
	"1": {0, 1, 1}, "L": {0, 8, 1}, "I;16": {0, 16, 1}, "LA": {4, 8, 2}, "RGB": {2, 8, 3}, "RGBA": {6, 8, 4},
}

const pngMagic = "\x89PNG\r\n\x1a\n"

// AppendPNG appends an image that is stored as pixels as a PNG file with the same pixels.
func AppendPNG(dst, b []byte) ([]byte, error) {
	const head = 12 // width, height, length of the mode
	if len(b) < head {
		return dst, corruptf("an image is cut off: it has %d bytes", len(b))
	}
	width, height, n := binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:]),
		binary.LittleEndian.Uint32(b[8:])
	if int64(n) > int64(len(b)-head) {
		return dst, corruptf("an image states a mode of %d bytes, and has %d", n, len(b))
	}
	name, pixels := string(b[head:head+n]), b[head+n:]
	mode, ok := modes[name]
	if !ok {
		return dst, fmt.Errorf("an image has the mode %.20q, which PNG has not: leave such rows or the column out, or convert it in Python", name)
	}
	row := (uint64(width)*uint64(mode.bits)*uint64(mode.samples) + 7) / 8
	if width == 0 || height == 0 || width > 1<<31-1 || height > 1<<31-1 || row > uint64(len(pixels)) ||
		row*uint64(height) != uint64(len(pixels)) {
		return dst, corruptf("an image of %d × %d pixels of mode %s has %d bytes of pixels", width, height, name,
			len(pixels))
	}
	dst = append(dst, pngMagic...)
	ihdr := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, width), height)
	dst = appendPart(dst, "IHDR", append(ihdr, mode.bits, mode.colour, 0, 0, 0))
	var out bytes.Buffer
	z, err := zlib.NewWriterLevel(&out, zlib.BestSpeed)
	if err != nil {
		return dst, err
	}
	const up = 2 // the filter: the difference to the row above
	line := make([]byte, 1+row)
	line[0] = up
	above := make([]byte, row)
	for at := range int(height) {
		this := pixels[at*int(row):][:row]
		if mode.bits == 16 { // big-endian in PNG
			for i := 0; i < len(this); i += 2 {
				line[1+i], line[2+i] = this[i+1], this[i]
			}
		} else {
			copy(line[1:], this)
		}
		for i, c := range line[1:] {
			line[1+i], above[i] = c-above[i], c
		}
		if _, err := z.Write(line); err != nil {
			return dst, err
		}
	}
	if err := z.Close(); err != nil {
		return dst, err
	}
	return appendPart(appendPart(dst, "IDAT", out.Bytes()), "IEND", nil), nil
}

// appendPart appends a length, a type, the data, and their CRC.
func appendPart(dst []byte, kind string, data []byte) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(data)))
	begin := len(dst)
	dst = append(append(dst, kind...), data...)
	return binary.BigEndian.AppendUint32(dst, crc32.ChecksumIEEE(dst[begin:]))
}
