package recognise

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"hash/crc32"
	"path"
	"strings"

	"github.com/shardtool/shardtool/internal/format/npy"
	"github.com/shardtool/shardtool/writer/source"
)

// headSize is the number of bytes read at the beginning of a file. A tar archive has its signature
// at 257, and the header of a .npy file seldom takes more than 128. JSON is told by its second
// line.
const (
	headSize = 512
	jsonHead = 64 << 10
)

// signatures are beginnings of files.
var signatures = []struct {
	text string
	kind *Kind
}{
	{"ARROW1\x00\x00", Arrow},
	{"FEA1", feather1},
	{"Obj\x01", avro},
	{"\x89HDF\r\n\x1a\n", hdf5},
	{"CDF\x01", netcdf},
	{"CDF\x02", netcdf},
	{"CDF\x05", netcdf},
	{"SQLite format 3\x00", sqlite},
	// the hash in the first block header of Riegeli, which is the same in all files
	{"\x83\xaf\x70\xd1\x0d\x88\x4a\x3f", arrayRecord},
	{"\x0a\x23\xd7\xce", recordIO},
	{"MMIDIDX\x00\x00", Megatron},
	{"\xfd7zXZ\x00", xz},
	{"\x04\x22\x4d\x18", lz4},
	{"7z\xbc\xaf\x27\x1c", sevenZip},
	{"Rar!\x1a\x07", rar},
	{"\x1f\x8b\x08", gZip},
	{"\x28\xb5\x2f\xfd", zstd},
	{"version https://git-lfs.github.com/spec/", lfsPointer},
}

// ofBytes returns the kind that the beginning and the end of a file of size bytes show, or nil.
func ofBytes(name string, head, tail []byte, size int64) *Kind {
	for _, s := range signatures {
		if bytes.HasPrefix(head, []byte(s.text)) {
			return s.kind
		}
	}
	low := strings.ToLower(path.Base(name))
	has := func(at int, text string) bool {
		return len(head) >= at+len(text) && string(head[at:at+len(text)]) == text
	}
	switch {
	case len(head) < 8:
		return nil
	case strings.HasSuffix(low, ".json") && (isList(head) || isLines(head)):
		return Lines
	case (has(0, "PAR1") || has(0, "PARE")) && (bytes.HasSuffix(tail, []byte("PAR1")) ||
		bytes.HasSuffix(tail, []byte("PARE"))):
		return Parquet
	case has(257, "ustar"):
		return Tar
	case has(0, "ORC") && bytes.Contains(tail, []byte("ORC")):
		return orc
	case has(0, "BZh") && has(4, "1AY&SY"):
		return bzip2
	case has(0, "PK\x03\x04") && bytes.HasSuffix(firstMember(head), []byte(".npy")) && !strings.HasSuffix(low, ".zip"):
		return Arrays
	case has(0, "PK\x03\x04"):
		return Zip
	case isTFRecord(head, size):
		return TFRecord
	case isArrowStream(head, size):
		return Arrow
	case isIDX(head, size):
		return idx
	case isLong(head):
		return ofArray(head)
	case binary.LittleEndian.Uint64(head) < uint64(size) && has(8, `{"`) && binary.LittleEndian.Uint64(head) < 100<<20:
		return safetensors
	case strings.HasSuffix(low, ".bin") && strings.Contains(low, "_batch") && size%3073 == 0:
		return cifar
	case !strings.Contains(low, ".") && head[0] == 0x80 && head[1] >= 2 && head[1] <= 5 &&
		bytes.HasSuffix(tail, []byte(".")):
		return pickled
	}
	return nil
}

// firstMember returns the name of the first member of a zip archive, if it is in head.
func firstMember(head []byte) []byte {
	const at = 30
	if len(head) < at {
		return nil
	}
	return head[at:][:min(len(head)-at, int(binary.LittleEndian.Uint16(head[26:])))]
}

// isList recognizes the beginning of a JSON list of objects.
func isList(head []byte) bool {
	head = bytes.TrimLeft(bytes.TrimPrefix(head, []byte("\xef\xbb\xbf")), " \t\r\n")
	return len(head) > 0 && head[0] == '[' && bytes.HasPrefix(bytes.TrimLeft(head[1:], " \t\r\n"), []byte("{"))
}

// isLines recognizes an object of JSON in the first line and the beginning of another in the next,
// as Spark writes them to files named .json.
func isLines(head []byte) bool {
	first, rest, _ := bytes.Cut(bytes.TrimPrefix(head, []byte("\xef\xbb\xbf")), []byte("\n"))
	return bytes.HasPrefix(first, []byte("{")) && bytes.HasPrefix(bytes.TrimLeft(rest, " \t\r\n"), []byte("{")) &&
		json.Valid(first)
}

// isTFRecord checks the masked CRC-32C of the first length.
func isTFRecord(head []byte, size int64) bool {
	if len(head) < 12 || size < 16 {
		return false
	}
	sum := crc32.Checksum(head[:8], crc32.MakeTable(crc32.Castagnoli))
	return (sum>>15|sum<<17)+0xa282ead8 == binary.LittleEndian.Uint32(head[8:])
}

// isArrowStream recognizes the continuation and the length of the first message of an IPC stream,
// which is a multiple of 8.
func isArrowStream(head []byte, size int64) bool {
	n := int64(binary.LittleEndian.Uint32(head[4:]))
	return binary.LittleEndian.Uint32(head) == 0xffffffff && n > 0 && n%8 == 0 && n+8 <= size && len(head) > 12 &&
		binary.LittleEndian.Uint32(head[8:]) < 1<<10
}

// isIDX recognizes a type, a number of dimensions, and dimensions that give the size of the file.
func isIDX(head []byte, size int64) bool {
	width := map[byte]int64{8: 1, 9: 1, 11: 2, 12: 4, 13: 4, 14: 8}[head[2]]
	if head[0] != 0 || head[1] != 0 || width == 0 || head[3] == 0 || head[3] > 8 || len(head) < 4+4*int(head[3]) {
		return false
	}
	for i := range int(head[3]) {
		n := int64(binary.BigEndian.Uint32(head[4+4*i:]))
		if n == 0 || width > size/n {
			return false
		}
		width *= n
	}
	return size == 4+4*int64(head[3])+width
}

// header parses the header of a .npy file, as far as it is in head.
func header(head []byte) (npy.Header, bool) {
	h, _, err := npy.Read(head, int64(len(head)))
	return h, err == nil
}

// isLong recognizes an array that is too long for a field of a sample.
func isLong(head []byte) bool {
	h, ok := header(head)
	return ok && len(h.Shape) > 0 && h.Shape[0] >= 1<<20
}

// ofArray returns Tokens for integers in one dimension or rows, and Arrays for all other .npy
// files.
func ofArray(head []byte) *Kind {
	h, ok := header(head)
	if ok && len(h.Shape) > 0 && (len(h.Shape) > 2 || h.Kind != 'i' && h.Kind != 'u') {
		return Arrays
	}
	return Tokens
}

// Of returns the kind of a file: by its bytes, else by its name, or nil. as is the extension by
// which pack reads it, where the name lacks or belies it. A stream that is read only once is judged
// by its name.
func Of(ctx context.Context, in source.Input) (k *Kind, as string, err error) {
	k, as, _, err = of(ctx, in)
	return k, as, err
}

// of also reports whether the bytes show the kind.
func of(ctx context.Context, in source.Input) (k *Kind, as string, shown bool, err error) {
	name := in.Name
	if OfName(name) == nil && in.Path != "" { // the file that a link leads to may be named by its content
		name = in.Path
	}
	named, suffix := ofName(name)
	if in.Once() {
		return named, "", false, nil
	}
	front := int64(headSize)
	if strings.HasSuffix(strings.ToLower(name), ".json") {
		front = jsonHead
	}
	head, tail, size, err := bothEnds(ctx, in, front, 64)
	if err != nil {
		return nil, "", false, err
	}
	seen := ofBytes(name, head, tail, size)
	switch {
	case seen == nil && named == Tokens && ofArray(head) == Arrays:
		return Arrays, "", false, nil
	case seen == nil, payload(strings.ToLower(name)) && seen != lfsPointer:
		return named, "", seen == named, nil
	case seen == named:
		return named, "", true, nil
	case seen == Arrays && bytes.HasPrefix(head, []byte("PK")):
		return Arrays, ".npz", true, nil
	case seen == TFRecord:
		return TFRecord, ".tfrecord", true, nil
	case seen == gZip && named != TFRecord && strings.Contains(path.Base(name), ".tfrecord"): // as in a.tfrecord-00000-of-00001
		return TFRecord, ".tfrecord.gz", true, nil
	case named == Lines || named == Tar || named == TFRecord || named == MDS:
		ending, is := codings[seen]
		plain, stated := cutCoding(suffix)
		switch {
		case is && ending == stated:
			return named, "", seen == named, nil
		case is:
			return named, plain + ending, true, nil
		case seen == Tar && stated != "":
			return Tar, ".tar", true, nil
		}
	case seen == Zip && named == Arrays: // an empty one, or one whose first member has a long header
		return Arrays, "", true, nil
	}
	return seen, "", true, nil
}

// codings are the extensions of the compressions that pack reads.
var codings = map[*Kind]string{gZip: ".gz", zstd: ".zst", bzip2: ".bz2", xz: ".xz", lz4: ".lz4"}

// cutCoding cuts the extension of a compression from extensions.
func cutCoding(suffix string) (plain, coding string) {
	switch {
	case suffix == ".tgz":
		return ".tar", ".gz"
	case suffix == ".tbz2":
		return ".tar", ".bz2"
	case suffix == ".txz":
		return ".tar", ".xz"
	case strings.HasSuffix(suffix, ".zstd"):
		return strings.TrimSuffix(suffix, ".zstd"), ".zst"
	}
	for _, coding := range codings {
		if plain, is := strings.CutSuffix(suffix, coding); is {
			return plain, coding
		}
	}
	return suffix, ""
}

// bothEnds reads up to front bytes at the beginning of a file, and the last back bytes of a longer
// one unless back is 0.
func bothEnds(ctx context.Context, in source.Input, front, back int64) (head, tail []byte, size int64, err error) {
	obj, err := in.Store.Open(ctx, in.Name)
	if err != nil {
		return nil, nil, 0, err
	}
	defer obj.Close()
	info, err := obj.Info(ctx)
	if err != nil {
		return nil, nil, 0, err
	}
	head = make([]byte, min(info.Size, front))
	if err = obj.ReadAt(ctx, head, 0); err != nil || info.Size <= front || back == 0 {
		return head, head, info.Size, err
	}
	tail = make([]byte, back)
	return head, tail, info.Size, obj.ReadAt(ctx, tail, info.Size-back)
}
