// Package kept keeps what was computed from a data set in a folder, so that the next process need
// not compute it again: plans of units, and lengths of samples.
//
//	KIND-<32 hex>.bin = magic | key (32 bytes) | payload | CRC-32C of all before (4 bytes)
//
// The name is the key, a hash of everything that the payload depends on, so a file is never out of
// date. Nothing here is needed for correctness: a folder that cannot be read or written, a disk
// that is full, and a file that is damaged or foreign mean that the payload is computed. Several
// processes may use a folder at once. A file appears whole, by a rename.
package kept

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"
)

// Key is a hash of all that a payload depends on.
type Key = [sha256.Size]byte

const (
	magic   = "SHRDKEPT"
	front   = len(magic) + sha256.Size
	sumSize = 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Folder is where files are kept; "" keeps none.
type Folder string

// MostBytes bounds the files of a folder together. Beyond it, the files written first are removed.
const MostBytes = 4 << 30

func (f Folder) path(kind string, key Key) string {
	return filepath.Join(string(f), kind+"-"+hex.EncodeToString(key[:16])+".bin")
}

// Get returns the payload of a key, of at most most bytes, or nil where there is none that is
// whole.
func (f Folder) Get(kind string, key Key, most int64) []byte {
	if f == "" {
		return nil
	}
	name := f.path(kind, key)
	info, err := os.Lstat(name) // before Open, which would wait for the writer of a pipe
	if err != nil || !info.Mode().IsRegular() || info.Size() < int64(front+sumSize) ||
		info.Size()-int64(front+sumSize) > most {
		return nil
	}
	text, err := os.ReadFile(name)
	if err != nil || len(text) < front+sumSize {
		return nil
	}
	body, sum := text[:len(text)-sumSize], binary.LittleEndian.Uint32(text[len(text)-sumSize:])
	if !bytes.HasPrefix(body, append([]byte(magic), key[:]...)) || crc32.Checksum(body, castagnoli) != sum {
		return nil
	}
	return body[front:]
}

// Put keeps a payload. The error is for a log: the payload is not kept, and nothing else happens.
func (f Folder) Put(kind string, key Key, payload []byte) (err error) {
	if f == "" {
		return nil
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("a file of %d bytes is not kept in %s: %w", len(payload), string(f), err)
		}
	}()
	if err := os.MkdirAll(string(f), 0o755); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(string(f), ".kept-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name()) // gone already where all went well
	head := append([]byte(magic), key[:]...)
	sum := crc32.Update(crc32.Checksum(head, castagnoli), castagnoli, payload)
	for _, part := range [][]byte{head, payload, binary.LittleEndian.AppendUint32(nil, sum)} {
		if _, err := tmp.Write(part); err != nil {
			tmp.Close()
			return err
		}
	}
	if err := tmp.Close(); err != nil {
		return err
	}
	if err := os.Rename(tmp.Name(), f.path(kind, key)); err != nil {
		return err
	}
	f.trim(MostBytes)
	return nil
}

var ours = regexp.MustCompile(`^([a-z]+-[0-9a-f]{32}\.bin|\.kept-[0-9]+)$`)

// trim removes the files written first, until the others have at most that number of bytes; and
// files that a killed process left unfinished a day ago.
func (f Folder) trim(most int64) {
	entries, err := os.ReadDir(string(f))
	if err != nil {
		return
	}
	var files []fs.FileInfo
	var sum int64
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() && ours.MatchString(e.Name()) {
			files = append(files, info)
			sum += info.Size()
		}
	}
	slices.SortFunc(files, func(a, b fs.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	for _, info := range files {
		unfinished := info.Name()[0] == '.'
		if unfinished && time.Since(info.ModTime()) > 24*time.Hour || !unfinished && sum > most {
			_ = os.Remove(filepath.Join(string(f), info.Name())) // or another process did
			sum -= info.Size()
		}
	}
}

// KeyOf is the key of some texts.
func KeyOf(texts ...string) Key {
	h := sha256.New()
	for _, t := range texts {
		fmt.Fprintf(h, "%d %s\x00", len(t), t)
	}
	return Key(h.Sum(nil))
}

// Keeper puts into a folder what need not be computed again, and warns where it cannot.
type Keeper struct {
	Folder Folder
	Log    *slog.Logger // or nil
}

// Put keeps a payload in the folder.
func (k *Keeper) Put(kind string, key Key, payload []byte) {
	if err := k.Folder.Put(kind, key, payload); err != nil && k.Log != nil {
		k.Log.Warn("units: the next start computes again what could not be kept", "what", kind, "error", err)
	}
}
