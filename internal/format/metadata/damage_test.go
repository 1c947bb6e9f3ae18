package metadata

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/damage"
	"github.com/shardtool/shardtool/internal/format/tarblock"
)

// TestTruncation: no beginning of a shard is a shard.
func TestTruncation(t *testing.T) {
	for _, plain := range []bool{false, true} {
		s := smallShard(t, plain)
		obj := s.Tail
		if !plain {
			obj = s.object()
		}
		for n := range obj {
			tail, need, err := ParseTail(obj[:n], int64(n))
			if tail != nil || need != 0 || !errors.Is(err, format.ErrCorrupt) {
				t.Fatalf("plain %v: the first %d bytes of %d: tail %v, need %d, error %v", plain, n, len(obj), tail, need, err)
			}
			if n < seekFooter && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Fatalf("%d bytes: %v does not wrap io.ErrUnexpectedEOF", n, err)
			}
		}
		for n := 1; n < 40; n++ {
			if _, _, err := ParseTail(append(bytes.Clone(obj), make([]byte, n)...), int64(len(obj)+n)); !errors.Is(err, format.ErrCorrupt) {
				t.Fatalf("plain %v: %d bytes behind the end: %v", plain, n, err)
			}
		}
	}
}

// TestTailInSteps: a reader that has too few bytes gets the number that it needs, and needs at most
// two more reads.
func TestTailInSteps(t *testing.T) {
	s := smallShard(t, false)
	obj := s.object()
	for have := range len(s.Tail) {
		n := int64(have)
		for reads := 0; ; reads++ {
			tail, need, err := ParseTail(obj[int64(len(obj))-n:], int64(len(obj)))
			if err != nil {
				t.Fatalf("with %d bytes: %v", n, err)
			}
			if tail != nil {
				if tail.Samples != uint64(len(small())) {
					t.Fatalf("%d samples", tail.Samples)
				}
				break
			}
			if need <= n || need > int64(len(obj)) || reads == 3 {
				t.Fatalf("with %d bytes, read %d: %d needed", n, reads, need)
			}
			n = need
		}
	}
}

// TestBitFlips: a full check finds every flipped bit of a shard, and its error has the place.
func TestBitFlips(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine: make test runs it without the race detector")
	}
	for _, plain := range []bool{false, true} {
		s := smallShard(t, plain)
		data, tail := bytes.Clone(s.Data), bytes.Clone(s.Tail)
		check := func() error {
			if plain {
				_, err := checkSidecar(data, tail)
				return err
			}
			_, err := checkShard(append(bytes.Clone(data), tail...))
			return err
		}
		if err := check(); err != nil {
			t.Fatal(err)
		}
		for _, part := range [][]byte{data, tail} {
			for bit := 0; bit < 8*len(part); bit++ {
				part[bit/8] ^= 1 << (bit % 8)
				if err := check(); !errors.Is(err, format.ErrCorrupt) && !errors.Is(err, format.ErrVersion) {
					t.Fatalf("plain %v: bit %d of byte %d of %d: %v", plain, bit%8, bit/8, len(part), err)
				}
				part[bit/8] ^= 1 << (bit % 8)
			}
		}
		t.Logf("plain %v: %d bytes", plain, len(data)+len(tail))
	}
}

// TestJoined: neither order of joining two shards, nor one shard twice, gives a shard.
func TestJoined(t *testing.T) {
	a := smallShard(t, false).object()
	b := pack(t, []testSample{one("other", "txt", "x")}, packOptions{}).object()
	for _, pair := range [][2][]byte{{a, b}, {b, a}, {a, a}, {b, b}} {
		joined := append(bytes.Clone(pair[0]), pair[1]...)
		if _, _, err := ParseTail(joined, int64(len(joined))); !errors.Is(err, format.ErrCorrupt) {
			t.Errorf("%d and %d bytes joined: %v", len(pair[0]), len(pair[1]), err)
		}
	}
	// A shard in a shard, cut where the inner one ends.
	inner := pack(t, []testSample{one("k", "bin", string(noise(1, 60_000)))}, packOptions{}).object()
	outer := pack(t, []testSample{one("inner", "tar.zst", string(inner))}, packOptions{}).object()
	if at := bytes.Index(outer, inner); at >= 0 {
		if _, _, err := ParseTail(outer[:at+len(inner)], int64(at+len(inner))); !errors.Is(err, format.ErrCorrupt) {
			t.Errorf("cut behind an inner shard: %v", err)
		}
	} else {
		t.Error("the inner shard is not stored in one piece")
	}
}

// TestSwappedFrames: frames of equal length in each other's place are found, and so is a shard with
// another's tail.
func TestSwappedFrames(t *testing.T) {
	a, b := one("a", "bin", string(noise(1, 3000))), one("b", "bin", string(noise(2, 3000)))
	s := pack(t, []testSample{a, b}, packOptions{Block: 1000})
	r := pack(t, []testSample{b, a}, packOptions{Block: 1000})
	if len(s.Data) != len(r.Data) || s.Index.Rows[0].Stored != s.Index.Rows[1].Stored {
		t.Fatalf("%d and %d bytes: the frames are of different lengths", len(s.Data), len(r.Data))
	}
	if _, err := checkShard(append(bytes.Clone(r.Data), s.Tail...)); !errors.Is(err, format.ErrCorrupt) {
		t.Errorf("frames swapped: %v", err)
	}
	if _, err := checkShard(append(bytes.Clone(s.Data), r.Tail...)); !errors.Is(err, format.ErrCorrupt) {
		t.Errorf("another tail: %v", err)
	}
	plain := pack(t, []testSample{a, b}, packOptions{Block: 1000, Plain: true})
	other := pack(t, []testSample{b, a}, packOptions{Block: 1000, Plain: true})
	if _, err := checkSidecar(plain.Data, other.Tail); !errors.Is(err, format.ErrCorrupt) {
		t.Errorf("another sidecar: %v", err)
	}
	if _, err := checkShard(plain.Tail); !errors.Is(err, format.ErrCorrupt) {
		t.Errorf("a sidecar as shard: %v", err)
	}
}

// TestContentChecker: every byte outside payloads is compared, for any division of a block into
// pieces.
func TestContentChecker(t *testing.T) {
	s := pack(t, small(), packOptions{Plain: true})
	block := s.Data[:len(s.Data)-tarblock.EndLen]
	payload := make([]bool, len(block))
	w, m := tarblock.Walker{Buf: block}, tarblock.Member{}
	for {
		ok, err := w.Next(&m)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			break
		}
		for i := m.Payload; i < m.Payload+m.Size; i++ {
			payload[i] = true
		}
	}
	check := func(b []byte, piece int) error {
		c := NewBlockChecker(s.Index.Cursors([]int{0})[0], len(small()))
		for len(b) > 0 {
			n := min(piece, len(b))
			if err := c.Write(b[:n]); err != nil {
				return err
			}
			b = b[n:]
		}
		return c.End()
	}
	for _, piece := range []int{1, 7, 511, 512, 513, len(block)} {
		if err := check(block, piece); err != nil {
			t.Fatalf("pieces of %d: %v", piece, err)
		}
		for _, bad := range [][]byte{block[:len(block)-1], block[:len(block)-512], block[:512], nil, append(bytes.Clone(block), 0)} {
			if err := check(bad, piece); !errors.Is(err, format.ErrCorrupt) {
				t.Errorf("pieces of %d: %d bytes of %d: %v", piece, len(bad), len(block), err)
			}
		}
	}
	for i := range block {
		block[i] ^= 0x10
		if err := check(block, len(block)); (err == nil) != payload[i] {
			t.Fatalf("byte %d, payload %v: %v", i, payload[i], err)
		}
		block[i] ^= 0x10
	}
	// Cursors into the middle.
	all := s.Index.Cursors([]int{0, 2, 2, 5})
	if all[1].Sample != 2 || all[3].Sample != 5 || all[3].at[2] == all[0].at[2] {
		t.Errorf("cursors %+v", all)
	}
}

// TestErrorPosition: an error has the shard, the block, the offset and the sample, and the
// innermost position wins.
func TestErrorPosition(t *testing.T) {
	err := format.Place{Shard: "train-000003.tar.zst", Block: 4, Offset: 99, Key: "k"}.Wrap(format.Place{Block: 17, Offset: 0}.Wrap(format.At(8192, damage.Errorf("checksum mismatch"))))
	if got := err.Error(); got != `shard train-000003.tar.zst: block 17 at 8192: sample "k": corrupt data: checksum mismatch` {
		t.Errorf("error reads %q", got)
	}
	if !errors.Is(err, format.ErrCorrupt) || format.InShard("x", nil) != nil || format.At(1, nil) != nil {
		t.Error("wrapping")
	}
	for _, c := range []struct {
		err  error
		want string
	}{{format.Place{Block: 3, Offset: -1}.Wrap(io.EOF), "block 3: EOF"}, {format.At(5, io.EOF), "at 5: EOF"}, {format.InShard("s", io.EOF), "shard s: EOF"}} {
		if c.err.Error() != c.want {
			t.Errorf("error reads %q, want %q", c.err, c.want)
		}
	}
	_, _, err = ParseTail([]byte(strings.Repeat("x", 100)), 100)
	var pos *format.PosError
	if !errors.As(err, &pos) || pos.Offset != 91 {
		t.Errorf("no seek table: %v", err)
	}
}
