package cache

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/shardtool/shardtool/objstore"
)

// The layout of a file: a header of little-endian integers, then the bytes.
//
//	 0  magic and version, 8 bytes
//	 8  identity, 32 bytes
//	40  offset, 8 bytes
//	48  length, 4 bytes
//	52  CRC-32C of the bytes, 4 bytes
//	56  zero, 4 bytes
//	60  CRC-32C of the 60 bytes above, 4 bytes
const (
	magic      = "stcache\x01"
	headerSize = 64

	// maxPiece is the longest range that is cached: its length fits the header, and its file size
	// an int on every system.
	maxPiece = 1<<31 - 1 - headerSize

	// grain is the unit to which counted sizes are rounded up: the block size of most file systems.
	grain = 4096
)

// tempDir is the directory of the ranges that are being fetched.
const tempDir = "tmp"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// identity identifies the content of an object.
type identity [sha256.Size]byte

// noIdentity means that versions cannot be distinguished.
var noIdentity identity

// identityGiven hashes the identity given to OpenAs.
func identityGiven(given string) identity { return sha256.Sum256([]byte("given " + given)) }

// identityOf hashes a store's entire description of a version, because the ETags of two stores may
// agree by chance. It uses whole seconds, because a store may know times more precisely in one
// answer than in another.
func identityOf(address, name string, info objstore.Info) identity {
	if weak(info.ETag) {
		return noIdentity
	}
	return sha256.Sum256(fmt.Appendf(nil, "found %q %q %q %d %d", address, name, info.ETag, info.Size,
		info.ModTime.Unix()))
}

// weak reports whether an ETag does not promise equal bytes (RFC 9110, section 8.8.1).
func weak(tag string) bool { return tag == "" || strings.HasPrefix(tag, "W/") }

// key is one range of one object.
type key struct {
	id  identity
	off int64
	n   int
}

// end is the offset behind the range.
func (k key) end() int64 { return k.off + int64(k.n) }

// path returns the path of the file, relative to the cache folder.
func (k key) path(g *group) string {
	return pieceName(g, k.bucket(), k.id[:nameHash], k.off, int64(k.n))
}

// bucket depends on the entire key, because small data sets have few identities.
func (k key) bucket() byte { return byte(k.hash() >> 24) }

// temp returns the path of the file while the range is fetched. Ranges whose hashes collide are
// fetched one after the other.
func (k key) temp() string {
	return tempDir + "/" + string(hex.AppendEncode(nil, binary.BigEndian.AppendUint64(nil, k.hash())))
}

func pieceName(g *group, bucket byte, id []byte, off, n int64) string {
	name := make([]byte, 0, 128)
	name = append(name, g.dir...)
	name = append(name, '/')
	name = hex.AppendEncode(name, []byte{bucket})
	name = append(name, '/')
	name = hex.AppendEncode(name, id)
	name = append(name, '-')
	name = strconv.AppendInt(name, off, 16)
	name = append(name, '-')
	name = strconv.AppendInt(name, n, 16)
	return string(name)
}

// header appends the header of the file.
func (k key) header(dst []byte, sum uint32) []byte {
	start := len(dst)
	dst = append(dst, magic...)
	dst = append(dst, k.id[:]...)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(k.off))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(k.n))
	dst = binary.LittleEndian.AppendUint32(dst, sum)
	dst = binary.LittleEndian.AppendUint32(dst, 0)
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[start:], castagnoli))
}

var errDamaged = errors.New("damaged")

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errDamaged, fmt.Sprintf(format, args...))
}

// readPiece fills p from an open file that should hold key. If the file is damaged, the error wraps
// errDamaged and the contents of p are undefined.
func readPiece(file *os.File, fi os.FileInfo, key key, p []byte) error {
	if !fi.Mode().IsRegular() {
		return damaged("it is not a regular file (%s)", fi.Mode().Type())
	}
	if want := int64(headerSize + key.n); fi.Size() != want {
		return damaged("it has %d bytes, not %d", fi.Size(), want)
	}
	var buf, expected [headerSize]byte
	if err := readFull(file, buf[:], 0); err != nil {
		return err
	}
	// The key determines the entire header except the checksum of the bytes.
	sum := binary.LittleEndian.Uint32(buf[52:])
	if !bytes.Equal(buf[:], key.header(expected[:0], sum)) {
		return damaged("its header is for another range")
	}
	if err := readFull(file, p, headerSize); err != nil {
		return err
	}
	if crc32.Checksum(p, castagnoli) != sum {
		return damaged("checksum mismatch")
	}
	return nil
}

func readFull(file *os.File, p []byte, off int64) error {
	_, err := file.ReadAt(p, off)
	if errors.Is(err, io.EOF) {
		return damaged("it was cut short")
	}
	return err
}

// charge returns what a file of that size counts.
func charge(size int64) int64 { return (size + grain - 1) / grain * grain }

func (k key) charge() int64 { return charge(headerSize + int64(k.n)) }

// hash spreads the keys. A collision only causes a suboptimal choice.
func (k key) hash() uint64 {
	// The identity is a hash already; Fibonacci hashing spreads the range.
	h := binary.LittleEndian.Uint64(k.id[:]) ^ (uint64(k.off)+uint64(k.n)<<40)*0x9e3779b97f4a7c15
	return h ^ h>>32
}
