package format

// MaxFrame is the most bytes that a frame decodes to (SPEC 3). A larger block has several frames.
const MaxFrame = 16 << 20

// Row describes one frame. A row with 0 samples continues the block of the row before.
type Row struct {
	// Stored and Decoded are lengths in bytes, Decoded at most MaxFrame.
	Stored, Decoded uint32
	// Samples is the number of the block's samples, in its first row; 0 in the others.
	Samples uint32
	// CRC is the CRC-32C of the stored bytes.
	CRC uint32
	// Codec is how they are stored.
	Codec Codec
}

// Codec is how a frame's bytes are stored (section BCDC).
type Codec uint8

const (
	// CodecBytes: unchanged (plain .tar shards).
	CodecBytes Codec = 0
	// CodecZstd: a zstd frame.
	CodecZstd Codec = 1
	// CodecRaw: a zstd frame of raw blocks only, whose content can be read in place.
	CodecRaw Codec = 2
)

func (c Codec) String() string {
	switch c {
	case CodecBytes:
		return "bytes"
	case CodecZstd:
		return "zstd"
	case CodecRaw:
		return "raw"
	}
	return "unknown"
}

// Version of the format that this package writes. A reader refuses another major and ignores a
// newer minor: what an older reader must not ignore is in critical sections. Directories without
// layouts and numbered keys have minor 0, so that their bytes are the same as in older versions.
const (
	Major = 1
	Minor = 1
)
