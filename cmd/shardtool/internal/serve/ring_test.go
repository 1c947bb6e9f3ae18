package serve

import (
	"errors"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/shardtool/shardtool/internal/extent"
)

// TestRing takes and gives back regions of random sizes in random order: none overlaps another, the
// bound holds, segments that are in the way are retired, and when all is back there is as much room
// as in the beginning.
func TestRing(t *testing.T) {
	t.Run("system", func(t *testing.T) { testRing(t, system()) })
	t.Run("portable", func(t *testing.T) { testRing(t, portable) })
}

func testRing(t *testing.T, m memory) {
	const bound = 40 << 20
	rng := rand.New(rand.NewPCG(1, 2))
	announced, retired := map[uint32]int{}, 0
	r := newRing(func(n uint32, fd, size int) error {
		if _, twice := announced[n]; twice || fd < 0 {
			t.Fatalf("segment %d is announced twice, or without a file", n)
		}
		announced[n] = size
		total := 0
		for _, size := range announced {
			total += size
		}
		if total > bound {
			t.Fatalf("%d bytes of segments", total)
		}
		return nil
	}, func(n uint32) error {
		delete(announced, n)
		retired++
		return nil
	})
	r.memory = m
	r.limit(bound)
	defer r.close()
	var held []region
	marks := map[*byte]byte{}
	refused := 0
	largest := 1 << 20
	for step := range 20000 {
		if step == 10000 {
			largest = 12 << 20 // larger than the first segments
		}
		n := 1 + rng.IntN(largest)
		idle, freed := r.wait()
		reg, ok, err := r.get(n)
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			if len(reg.data) < n || len(reg.data)%pageSize != 0 {
				t.Fatalf("a region of %d bytes for %d", len(reg.data), n)
			}
			mark := byte(1 + rng.IntN(255))
			reg.data[0], reg.data[len(reg.data)-1] = mark, mark
			marks[&reg.data[0]] = mark
			held = append(held, reg)
		} else if refused++; idle {
			t.Fatalf("%d bytes do not fit into an empty ring", n)
		}
		for len(held) > 0 && (!ok || rng.IntN(3) == 0) {
			i := rng.IntN(len(held))
			reg := held[i]
			if mark := marks[&reg.data[0]]; reg.data[0] != mark || reg.data[len(reg.data)-1] != mark {
				t.Fatal("a region was written to by another")
			}
			if err := r.release(reg.segment, reg.offset); err != nil {
				t.Fatal(err)
			}
			held[i] = held[len(held)-1]
			held = held[:len(held)-1]
			select {
			case <-freed:
			default:
				t.Fatal("nobody was told of a release")
			}
			if ok = ok || rng.IntN(4) == 0; ok {
				break
			}
		}
	}
	for _, reg := range held {
		if err := r.release(reg.segment, reg.offset); err != nil {
			t.Fatal(err)
		}
	}
	if idle, _ := r.wait(); !idle || refused == 0 || retired == 0 {
		t.Errorf("idle %v, refused %d times, %d segments retired", idle, refused, retired)
	}
	for _, s := range r.segments {
		if len(s.free) != 1 || s.free[0] != (extent.Extent{At: 0, Size: len(s.data)}) || len(s.used) != 0 {
			t.Errorf("segment %d: free %v", s.number, s.free)
		}
	}
	if reg, ok, err := r.get(bound); !ok || err != nil || len(reg.data) != bound {
		t.Errorf("all of it: %v, %v", ok, err)
	}
	if err := r.release(0, 12345); err == nil {
		t.Error("a release of nothing passes")
	}
}

// TestNoMemory: where the system has no memory, that is an error before anything is written, and
// what is there stays of use.
func TestNoMemory(t *testing.T) {
	r := newRing(func(uint32, int, int) error { return nil }, func(uint32) error { return nil })
	defer r.close()
	r.limit(64 << 20)
	left := int64(3 << 20)
	allocate := r.memory.back
	interrupted := 0
	r.memory.back = func(f *os.File, at, size int64) error {
		if interrupted++; interrupted%2 == 1 {
			return unix.EINTR
		}
		if left < size {
			return unix.ENOSPC
		}
		left -= size
		return allocate(f, at, size)
	}
	var held []region
	for {
		reg, ok, err := r.get(1 << 20)
		if err != nil {
			if !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), "prefetch fewer") || !strings.Contains(err.Error(), "have 3145728 bytes") {
				t.Fatal(err)
			}
			break
		}
		if !ok {
			t.Fatal("the bound comes first")
		}
		reg.data[0] = 1
		held = append(held, reg)
	}
	if len(held) != 3 || r.out != 3 {
		t.Fatalf("%d regions of 1 MiB in 3 MiB, %d counted", len(held), r.out)
	}
	if err := r.release(held[1].segment, held[1].offset); err != nil {
		t.Fatal(err)
	}
	if reg, ok, err := r.get(1 << 20); err != nil || !ok || reg.offset != held[1].offset {
		t.Fatalf("what was given back: %v %v %v", reg.offset, ok, err)
	}
}

// TestRingAlone: a sample larger than the bound gets a region when nothing else is in use.
func TestRingAlone(t *testing.T) {
	r := newRing(func(uint32, int, int) error { return nil }, func(uint32) error { return nil })
	r.limit(1 << 20)
	defer r.close()
	small, ok, err := r.get(1)
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	if _, ok, err := r.getAlone(3 << 20); ok || err != nil {
		t.Fatal("a region beside another one", err)
	}
	if err := r.release(small.segment, small.offset); err != nil {
		t.Fatal(err)
	}
	large, ok, err := r.getAlone(3<<20 + 1)
	if !ok || err != nil || len(large.data) < 3<<20+1 {
		t.Fatal(ok, err)
	}
	if err := r.release(large.segment, large.offset); err != nil {
		t.Fatal(err)
	}
	if _, ok, _ := r.get(4 << 20); ok || r.bound != 1<<20 {
		t.Errorf("the bound is %d", r.bound)
	}
}
