package stream

import (
	"bytes"
	"context"
	"crypto/md5"
	"errors"
	"io"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"go.uber.org/goleak"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
)

func TestMain(m *testing.M) {
	window = 64 << 10
	goleak.VerifyTestMain(m)
}

func object(t *testing.T, content []byte) objstore.Object {
	t.Helper()
	store := mem.New()
	if _, err := objstore.Put(t.Context(), store, "x", content, objstore.Condition{}); err != nil {
		t.Fatal(err)
	}
	obj, err := store.Open(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { obj.Close() })
	return obj
}

// TestOffsets: reading from an offset gives the tail of the decoded bytes, near or far, over
// several ranges.
func TestOffsets(t *testing.T) {
	t.Parallel()
	text := make([]byte, 3*window+1234)
	for i := range text {
		text[i] = byte(rand.IntN(20))
	}
	var zipped, zst bytes.Buffer
	z, _ := gzip.NewWriterLevel(&zipped, 1)
	_, err := z.Write(text)
	if err = errors.Join(err, z.Close()); err != nil {
		t.Fatal(err)
	}
	e, err := zstd.NewWriter(&zst, zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		t.Fatal(err)
	}
	_, err = e.Write(text)
	if err = errors.Join(err, e.Close()); err != nil {
		t.Fatal(err)
	}
	for coding, stored := range map[Coding][]byte{Plain: text, Gzip: zipped.Bytes(), Zstd: zst.Bytes()} {
		for _, remote := range []bool{false, true} {
			for _, off := range []int{0, 1, int(window), len(text) - 1, len(text)} {
				s, err := Open(t.Context(), object(t, stored), int64(len(stored)), remote, coding, int64(off))
				if err != nil {
					t.Fatal(err)
				}
				got, err := io.ReadAll(s)
				if err != nil || !bytes.Equal(got, text[off:]) {
					t.Errorf("coding %d, remote %v, from %d: %d bytes, want %d; %v", coding, remote, off, len(got), len(text)-off, err)
				}
				s.Close()
			}
			if _, err := Open(t.Context(), object(t, stored), int64(len(stored)), remote, coding, int64(len(text)+1)); coding != Plain && !errors.Is(err, objstore.ErrChanged) {
				t.Errorf("coding %d behind the end: %v", coding, err)
			}
		}
	}
}

// summed is an object whose store keeps a checksum.
type summed struct {
	objstore.Object
	want [md5.Size]byte
}

func (s summed) Sum(context.Context) (*objstore.Sum, error) {
	return &objstore.Sum{Name: "MD5", Want: s.want[:], New: md5.New}, nil
}

// TestCompared: a remote object is compared at its end, from any offset in its first range, and the
// front is not handed out.
func TestCompared(t *testing.T) {
	t.Parallel()
	text := make([]byte, 3*window+1234)
	for i := range text {
		text[i] = byte(rand.IntN(256))
	}
	for _, off := range []int64{0, 1, window - 1, window, window + 1} {
		for _, right := range []bool{true, false} {
			want := md5.Sum(text)
			if !right {
				want[0]++
			}
			s, err := Open(t.Context(), summed{object(t, text), want}, int64(len(text)), true, Plain, off)
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(s)
			fails := !right && off <= window
			if !bytes.Equal(got, text[off:]) || fails != errors.Is(err, format.ErrCorrupt) || !fails && err != nil {
				t.Errorf("from %d, right %v: %d bytes of %d, %v", off, right, len(got), len(text)-int(off), err)
			}
			if _, again := s.Read(make([]byte, 1)); fails && again != err || !fails && again != io.EOF {
				t.Errorf("from %d, right %v: %v, then %v", off, right, err, again)
			}
			s.Close()
		}
	}
	// The beginning of an object, as of an archive's member, is not compared with the sum of the
	// whole.
	s, err := Open(t.Context(), summed{object(t, text), md5.Sum(text)}, 1000, true, Plain, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if got, err := io.ReadAll(s); err != nil || len(got) != 1000 {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// slow is an object whose reads last until their context ends.
type slow struct{ objstore.Object }

func (slow) ReadAt(ctx context.Context, _ []byte, _ int64) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestClose cancels the requests in flight and waits for them.
func TestClose(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	s, err := Open(ctx, slow{object(t, nil)}, 10*window, true, Plain, 0)
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(10*time.Millisecond, cancel)
	if _, err := s.Read(make([]byte, 10)); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	s.Close()
}

// TestJoined: concatenated compressed files are one file, as for their tools; a window beyond the
// limit has its own error.
func TestJoined(t *testing.T) {
	t.Parallel()
	var zipped, zst bytes.Buffer
	for _, part := range []string{"one ", "", "two"} {
		z := gzip.NewWriter(&zipped)
		_, err := io.WriteString(z, part)
		if err = errors.Join(err, z.Close()); err != nil {
			t.Fatal(err)
		}
		e, err := zstd.NewWriter(&zst)
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.WriteString(e, part)
		if err = errors.Join(err, e.Close()); err != nil {
			t.Fatal(err)
		}
	}
	read := func(coding Coding, stored []byte) (string, error) {
		s, err := Open(t.Context(), object(t, stored), int64(len(stored)), false, coding, 0)
		if err != nil {
			return "", err
		}
		defer s.Close()
		got, err := io.ReadAll(s)
		return string(got), err
	}
	for coding, stored := range map[Coding][]byte{Gzip: zipped.Bytes(), Zstd: zst.Bytes()} {
		if got, err := read(coding, stored); err != nil || got != "one two" {
			t.Errorf("coding %d: %q, %v", coding, got, err)
		}
		if _, err := read(coding, append(bytes.Clone(stored), "garbage"...)); !errors.Is(err, format.ErrCorrupt) {
			t.Errorf("coding %d with garbage behind it: %v", coding, err)
		}
	}
	// RFC 8878: magic, a descriptor of nothing, a window of 2^(10+18) bytes, an empty last block.
	if _, err := read(Zstd, []byte{0x28, 0xb5, 0x2f, 0xfd, 0, 18 << 3, 1, 0, 0}); !errors.Is(err, format.ErrTooLarge) || errors.Is(err, format.ErrCorrupt) {
		t.Error(err)
	}
}

func TestSuffixes(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]struct {
		rest   string
		coding Coding
	}{"a.gz": {"a", Gzip}, "a.b.GZ": {"a.b", Gzip}, "a.zst": {"a", Zstd}, "a.Zstd": {"a", Zstd}, ".gz": {".gz", Plain}, "gz": {"gz", Plain}, "a.bz2": {"a", Bzip2}, "a.xz": {"a", Xz}, "a.lz4": {"a", Lz4}, "a.br": {"a.br", Plain}} {
		if rest, coding := CutSuffix(name); rest != want.rest || coding != want.coding {
			t.Errorf("%s: %s, %d", name, rest, coding)
		}
	}
}
