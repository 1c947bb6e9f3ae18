package serve

import (
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// quiet is a ring that nobody listens to.
func quiet(t *testing.T, bound int) *ring {
	t.Helper()
	r := newRing(func(uint32, int, int) error { return nil }, func(uint32) error { return nil })
	r.limit(bound)
	t.Cleanup(r.close)
	return r
}

// taken is a region that the parent has taken.
func (r *ring) taken(t *testing.T, n int) *region {
	t.Helper()
	reg, _, err := r.get(n)
	if reg == nil || err != nil {
		t.Fatalf("%d bytes: %v, %v", n, reg, err)
	}
	queue := []*region{}
	r.sent(&queue, reg, 0)
	r.take(&queue, 1)
	return reg
}

// TestRing takes and gives back regions of random sizes in random order, most of which the parent
// keeps for a while: none overlaps another, and has memory; the bound holds for what is ahead; and
// when all is back, so is the memory.
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
		return nil
	}, func(n uint32) error {
		delete(announced, n)
		retired++
		return nil
	})
	r.memory = m
	r.limit(bound)
	defer r.close()
	var held, queue []*region
	marks := map[*region]byte{}
	refused, most := 0, 0
	largest := 1 << 20
	for step := range 4000 {
		if step == 2000 {
			largest = 12 << 20 // larger than the first segments
		}
		n := 1 + rng.IntN(largest)
		freed := r.wait()
		reg, fits, err := r.get(n)
		if err != nil || !fits {
			t.Fatal(fits, err)
		}
		if reg != nil {
			if len(reg.data) < n || len(reg.data)%pageSize != 0 {
				t.Fatalf("a region of %d bytes for %d", len(reg.data), n)
			}
			marks[reg] = byte(1 + rng.IntN(255))
			for at := 0; at < len(reg.data); at += pageSize {
				reg.data[at] = marks[reg]
			}
			held = append(held, reg)
			r.sent(&queue, reg, uint64(step))
		} else if refused++; r.ahead+n < bound-pageSize {
			t.Fatalf("%d bytes are ahead, and %d do not fit", r.ahead, n)
		}
		if r.ahead > bound {
			t.Fatalf("%d bytes are ahead", r.ahead)
		}
		if reg == nil || rng.IntN(8) == 0 {
			r.take(&queue, uint64(step)) // all but the last
			select {
			case <-freed:
			default:
				if reg == nil {
					t.Fatal("nobody was told that there is room")
				}
			}
		}
		for len(held) > 0 && (r.used > 4*bound || rng.IntN(2) == 0) {
			i := rng.IntN(len(held))
			reg := held[i]
			for at := 0; at < len(reg.data); at += pageSize {
				if reg.data[at] != marks[reg] {
					t.Fatal("a region was written to by another")
				}
			}
			if err := r.release(reg.segment, reg.offset); err != nil {
				t.Fatal(err)
			}
			held = slices.Delete(held, i, i+1)
		}
		most = max(most, r.backed)
		if m.drop != nil && r.backed-r.used > 2*bound+1<<20 {
			t.Fatalf("%d bytes have memory, %d are in use", r.backed, r.used)
		}
	}
	for _, reg := range held {
		if err := r.release(reg.segment, reg.offset); err != nil {
			t.Fatal(err)
		}
	}
	if r.used != 0 || r.ahead != 0 || refused == 0 || retired == 0 || most < 3*bound ||
		m.drop != nil && r.backed > 2*bound+1<<20 {
		t.Errorf("%d bytes are used, %d are ahead, %d had memory, %d have; refused %d times, %d segments retired",
			r.used, r.ahead, most, r.backed, refused, retired)
	}
	for _, s := range r.segments {
		if len(s.free) != 1 || s.free[0].Size != len(s.data) || len(s.used) != 0 || announced[s.number] != len(s.data) {
			t.Errorf("segment %d: free %v", s.number, s.free)
		}
	}
	if reg, _, err := r.get(bound); reg == nil || err != nil || len(reg.data) != bound {
		t.Errorf("all of it: %v", err)
	}
	if _, fits, err := r.get(bound + 1); fits || err != nil {
		t.Errorf("more than all of it: %v, %v", fits, err)
	}
	if err := r.release(0, 12345); err == nil {
		t.Error("a release of nothing passes")
	}
}

// TestRingGivesBack: the parent keeps a thousand regions, which the bound does not count, and gives
// them back in any order. The memory follows, as the system counts it, and places that lost theirs
// are of use again.
func TestRingGivesBack(t *testing.T) {
	r := quiet(t, 4<<20)
	if r.memory.drop == nil {
		t.Skip("here only whole segments give their memory back")
	}
	stored := func() (n int) {
		for _, s := range r.segments {
			var st unix.Stat_t
			if err := unix.Fstat(int(s.file.Fd()), &st); err != nil {
				t.Fatal(err)
			}
			n += int(st.Blocks) * 512
		}
		return n
	}
	rng := rand.New(rand.NewPCG(3, 4))
	const size = 300_000
	for range 2 {
		var kept []*region
		for range 1000 {
			kept = append(kept, r.taken(t, size))
		}
		if r.used < 1000*size || r.ahead != 0 || stored() < r.backed {
			t.Fatalf("%d bytes are used, %d ahead; %d have memory, %d are stored", r.used, r.ahead, r.backed, stored())
		}
		rng.Shuffle(len(kept), func(i, k int) { kept[i], kept[k] = kept[k], kept[i] })
		for i, reg := range kept {
			if err := r.release(reg.segment, reg.offset); err != nil {
				t.Fatal(err)
			}
			if i%100 == 99 && (r.backed-r.used > 9<<20 || stored() > r.backed+32<<20) {
				t.Fatalf("%d bytes are used, %d have memory, %d are stored", r.used, r.backed, stored())
			}
		}
	}
	if r.backed > 9<<20 || len(r.segments) > 2 {
		t.Errorf("%d bytes have memory in %d segments", r.backed, len(r.segments))
	}
}

// TestRingStays: a consumer that keeps up gets the same memory again and again.
func TestRingStays(t *testing.T) {
	r := quiet(t, 1<<30)
	calls, back := 0, r.memory.back
	r.memory.back = func(f *os.File, at, size int64) error {
		calls++
		return back(f, at, size)
	}
	if r.memory.drop != nil {
		r.memory.drop = func(*os.File, int64, int64) error {
			t.Error("memory went back to the system")
			return nil
		}
	}
	rng := rand.New(rand.NewPCG(5, 6))
	var held []*region
	for step := range 10_000 {
		held = append(held, r.taken(t, 900_000+rng.IntN(200_000)))
		if len(held) == 16 {
			reg := held[0]
			held = held[1:]
			if err := r.release(reg.segment, reg.offset); err != nil {
				t.Fatal(err)
			}
		}
		if step == 5000 {
			calls = 0
		}
	}
	if calls > 20 || r.backed > 32<<20 {
		t.Errorf("memory was taken %d times; %d bytes have memory", calls, r.backed)
	}
}

// TestTakenTwice: a batch that was released before the parent said that it took it is not counted
// again in its place.
func TestTakenTwice(t *testing.T) {
	r := quiet(t, 1<<20)
	var queue []*region
	first, _, _ := r.get(pageSize)
	r.sent(&queue, first, 0)
	if err := r.release(first.segment, first.offset); err != nil {
		t.Fatal(err)
	}
	second, _, _ := r.get(pageSize)
	r.sent(&queue, second, 1)
	if second.offset != first.offset {
		t.Fatal("the place was not used again")
	}
	if r.take(&queue, 1); r.ahead != pageSize || len(queue) != 1 {
		t.Errorf("%d bytes are ahead, %d batches sent", r.ahead, len(queue))
	}
	if r.take(&queue, 2); r.ahead != 0 || len(queue) != 0 {
		t.Errorf("%d bytes are ahead, %d batches sent", r.ahead, len(queue))
	}
}

// TestNoMemory: where the system has no memory, that is an error before anything is written, which
// says how much the parent keeps, and what is there stays of use.
func TestNoMemory(t *testing.T) {
	r := quiet(t, 64<<20)
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
	held := []*region{r.taken(t, 1<<20), r.taken(t, 1<<20)}
	for {
		reg, _, err := r.get(1 << 20)
		if err != nil {
			want := "needs 1048576 bytes: batches that were made ahead have 1048576, and batches that the program keeps 2097152"
			if !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), want) {
				t.Fatal(err)
			}
			break
		}
		if reg == nil {
			t.Fatal("the bound comes first")
		}
		reg.data[0] = 1
		held = append(held, reg)
	}
	if len(held) != 3 || r.used != 3<<20 {
		t.Fatalf("%d regions of 1 MiB in 3 MiB, %d bytes counted", len(held), r.used)
	}
	if err := r.release(held[1].segment, held[1].offset); err != nil {
		t.Fatal(err)
	}
	if reg, _, err := r.get(1 << 20); err != nil || reg == nil || reg.offset != held[1].offset {
		t.Fatalf("what was given back: %v %v", reg, err)
	}
}

// TestRingAlone: a sample larger than the bound gets a region when nothing else is ahead.
func TestRingAlone(t *testing.T) {
	r := quiet(t, 1<<20)
	small, _, err := r.get(1)
	if small == nil || err != nil {
		t.Fatal(err)
	}
	if reg, err := r.getAlone(3 << 20); reg != nil || err != nil {
		t.Fatal("a region beside another one", err)
	}
	if err := r.release(small.segment, small.offset); err != nil {
		t.Fatal(err)
	}
	large, err := r.getAlone(3<<20 + 1)
	if large == nil || err != nil || len(large.data) < 3<<20+1 {
		t.Fatal(err)
	}
	if err := r.release(large.segment, large.offset); err != nil {
		t.Fatal(err)
	}
	if reg, fits, _ := r.get(4 << 20); reg != nil || fits || r.bound != 1<<20 {
		t.Errorf("the bound is %d", r.bound)
	}
}
