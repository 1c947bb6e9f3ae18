package fetch

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore"
)

// ErrClosed is returned by reads of a source that was closed. It wraps fs.ErrClosed.
var ErrClosed = fmt.Errorf("the data set is closed: %w", fs.ErrClosed)

// Source reads the objects of one data set. It may be used by several goroutines at once.
type Source struct {
	Store  objstore.Store
	Tables string // name of the tables, for errors
	Layer  bool   // whether it was asked for as a layer, for errors

	objects *objects
	flips   flips
}

// NewSource returns a source of the objects in a store.
func NewSource(store objstore.Store) *Source {
	return &Source{Store: store, objects: newObjects(store)}
}

// Close closes the objects that nobody uses; the others follow when their users are done.
func (s *Source) Close() { s.objects.close() }

// OneOf makes the source one of n that are read together: they keep as many objects open as one
// does alone. It lasts as long as the source.
func (s *Source) OneOf(n int) { s.objects.keep(max(maxOpen/n, 1)) }

// Remote reports whether the store is remote: asking for an object's size costs a request.
func (s *Source) Remote() bool { return s.objects.remote }

// Requests returns how many requests are kept in flight; 0 for a local store, where the workers
// bound reading.
func (s *Source) Requests() int {
	return objstore.TraitsOf(s.Store).Requests
}

// joined returns the most stored bytes of one read.
func (s *Source) joined() int {
	if s != nil && s.Remote() {
		return remoteMost
	}
	return joinMost
}

// open opens the object of a shard and compares its size, unless that would cost a request.
func (s *Source) open(ctx context.Context, of *Shard) (*handle, error) {
	h, err := s.objects.acquire(ctx, of.key())
	if err != nil {
		return nil, s.missing(err, of.Name)
	}
	if s.Remote() || of.Object.Unchecked {
		return h, nil
	}
	if _, err := s.checkSize(ctx, h, of.Size); err != nil {
		s.objects.release(h)
		return nil, err
	}
	return h, nil
}

// Expect tells a local store that a job will be read soon. An error has no consequence: the read
// meets it again.
func (s *Source) Expect(ctx context.Context, j *Job, stored int) {
	if s == nil {
		return
	}
	h, err := s.objects.acquire(ctx, j.Shard.key())
	if err != nil {
		return
	}
	if object, ok := h.Object.(interface{ Expect(off, n int64) }); ok {
		object.Expect(j.Offset, int64(stored))
	}
	s.objects.release(h)
}

// key returns the key that open acquires.
func (s *Shard) key() Key {
	if s.Object.Unchecked {
		return Key{Name: s.Name}
	}
	return Key{s.Name, s.Object.Identity}
}

// CheckSize compares the size of an object with what the tables say, and returns it: -1 where it is
// not known.
func (s *Source) CheckSize(ctx context.Context, name string, size uint64) (have int64, err error) {
	h, err := s.objects.acquire(ctx, Key{Name: name})
	if err != nil {
		return -1, s.missing(err, name)
	}
	defer s.objects.release(h)
	return s.checkSize(ctx, h, size)
}

func (s *Source) checkSize(ctx context.Context, h *handle, size uint64) (have int64, err error) {
	if err := s.objects.stat(ctx, h); err != nil {
		return -1, s.missing(err, h.Name)
	}
	have = h.info.Size
	if uint64(have) == size {
		return have, nil
	}
	kind := KindSize
	err = fmt.Errorf("%w: the object has %d bytes, %s says %d", format.ErrCorrupt, have, s.Tables, size)
	if uint64(have) < size {
		kind, err = KindTruncated, fmt.Errorf("%w: %w", err, io.ErrUnexpectedEOF)
	}
	if s.objects.replaced(h) {
		err = fmt.Errorf("%w: %w", err, objstore.ErrChanged)
	}
	return have, format.InShard(h.Name, &KindError{kind, err})
}

// Identify sets the identity of a shard: a hash over the lengths and checksums of its blocks and
// the shard's own hash. Only stores that keep blocks by identity get one. It does not cover the
// index.
func (s *Source) Identify(of *Shard) {
	if s.objects.openAs == nil {
		return
	}
	content := of.Content()
	buf := append([]byte("shardtool-blocks-1\n"), content[:]...)
	buf = binary.LittleEndian.AppendUint64(buf, of.Size)
	for _, r := range of.Rows {
		buf = binary.LittleEndian.AppendUint32(buf, r.Stored)
		buf = binary.LittleEndian.AppendUint32(buf, r.CRC)
	}
	sum := sha256.Sum256(buf)
	of.Object.Identity = hex.EncodeToString(sum[:])
}
