package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/shardtool/shardtool/bench/table"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/local"
	"github.com/shardtool/shardtool/reader"
)

// smallRun is what a child process of the group "small" streams. Cold is the first epoch of a new
// process, steady the mean of those after it: a stream gets its memory from the system in the
// first.
type smallRun struct {
	Dir    string
	Memory uint64 // of the shuffle window
	Batch  int
	Epochs uint64
	Rows   bool // take the rows of stacked data
	// Unmapped reads from a store whose objects cannot be mapped.
	Unmapped bool
	Decode   bool // decode the frames, which are in memory, in place of a stream
	Sums     bool // read and sum the frames in place of a stream
	Window   bool // and read them to Memory bytes in turn, which no cache holds, not to one buffer
	Gather   int  // in place of a stream gather rows of this many bytes from memory, after Sums or Decode where both are set
}

// smallTimes are its seconds: of a clock, and of processors.
type smallTimes struct {
	Cold, Steady, ColdCPU, SteadyCPU float64
	Samples                          uint64
}

// smallChild is the argument that makes this program such a child.
const smallChild = "-small-child="

// small measures samples of some bytes, where what a reader does for each sample counts, and the
// first epoch of a new process, where memory counts.
func (b *bench) small() error {
	if err := b.smallGather(); err != nil {
		return err
	}
	if err := b.smallTars(); err != nil {
		return err
	}
	if err := b.smallStacked(); err != nil {
		return err
	}
	return b.smallLimits()
}

// smallTars measures ordinary tars.
func (b *bench) smallTars() error {
	for _, c := range []struct {
		name, kind, floor string
		of                smallRun
		steady, cold      float64
	}{
		{"tar, text 200 B", "large tiny text", "DecodeAll of frames in memory", smallRun{Decode: true}, 0.9, 0.35},
		{"tar, text 3 KB", "large text", "DecodeAll of frames in memory", smallRun{Decode: true}, 0.93, 0.6},
		{"tar, random 100 KB", "large images", "pread + CRC-32C", smallRun{Sums: true}, 0, 0.6},
	} {
		dir, err := b.dataset(c.kind, false)
		if err != nil {
			return err
		}
		ours := b.smallRun(dir)
		floor := ours
		floor.Decode, floor.Sums = c.of.Decode, c.of.Sums
		if err := b.smallRows(c.name+" / "+c.floor, ours, floor, smallGoals{cold: c.cold, steady: c.steady, coldFloor: smallTimes.steady}); err != nil {
			return err
		}
	}
	dir, err := b.dataset("large images", false)
	if err != nil {
		return err
	}
	ours := b.smallRun(dir)
	floor := ours
	floor.Sums, floor.Window = true, true
	if err := b.smallRows("tar, random 100 KB / pread + CRC-32C to a window", ours, floor, smallGoals{coldFloor: smallTimes.steady}); err != nil {
		return err
	}
	return b.smallBatches()
}

// smallBatches compares batches of 32 with batches of 512: what a stream does for each batch.
func (b *bench) smallBatches() error {
	dir, err := b.dataset("large tiny text", false)
	if err != nil {
		return err
	}
	few, many := b.smallRun(dir), b.smallRun(dir)
	few.Batch, many.Batch = 32, 512
	return b.smallRows("tar, text 200 B, batches of 32 / of 512", few, many, smallGoals{coldFloor: smallTimes.cold})
}

// smallRun streams a data set through a window of an eighth of it.
func (b *bench) smallRun(dir string) smallRun {
	return smallRun{Dir: dir, Memory: uint64(b.mib) << 20 / 2, Batch: 256, Epochs: 3}
}

// smallGoals are the goals of a pair; 0 is none. The first epoch is compared with one of the
// floor's times.
type smallGoals struct {
	cold, steady float64
	coldFloor    func(smallTimes) float64
	detail       string // of the data
}

// smallRows adds the rows of a pair.
func (b *bench) smallRows(name string, ours, floor smallRun, goals smallGoals) error {
	pairs, err := b.smallPairs(ours, floor)
	if err != nil {
		return err
	}
	detail := func(our, base, ourCPU, baseCPU func(smallTimes) float64) string {
		return fmt.Sprintf("%.2f M/s against %.2f; by processor time %.2fx%s",
			pairs.rate(0, our)/1e6, pairs.rate(1, base)/1e6, pairs.ratio(ourCPU, baseCPU).Median(), goals.detail)
	}
	add := func(name string, r table.Sample, goal float64, detail string) {
		if goal > 0 {
			b.AtLeast("small", name, r, "x", goal, detail)
		} else {
			b.Info("small", name, r, "x", detail)
		}
	}
	add(name+", cold", pairs.ratio(smallTimes.cold, goals.coldFloor), goals.cold,
		detail(smallTimes.cold, goals.coldFloor, smallTimes.coldCPU, smallTimes.steadyCPU)+"; new process, page cache warm, "+reclaimedNote)
	add(name+", steady", pairs.ratio(smallTimes.steady, smallTimes.steady), goals.steady,
		detail(smallTimes.steady, smallTimes.steady, smallTimes.steadyCPU, smallTimes.steadyCPU))
	return nil
}

func (t smallTimes) cold() float64      { return t.Cold }
func (t smallTimes) steady() float64    { return t.Steady }
func (t smallTimes) coldCPU() float64   { return t.ColdCPU }
func (t smallTimes) steadyCPU() float64 { return t.SteadyCPU }

// smallPairs are the times of both sides, pair by pair.
type smallPairs [][2]smallTimes

// ratio returns how many times as fast ours is.
func (p smallPairs) ratio(ours, base func(smallTimes) float64) (r table.Sample) {
	for _, t := range p {
		r = append(r, base(t[1])/ours(t[0]))
	}
	return r
}

// rate returns the samples a second of a side.
func (p smallPairs) rate(side int, of func(smallTimes) float64) float64 {
	var r table.Sample
	for _, t := range p {
		r = append(r, float64(t[side].Samples)/of(t[side]))
	}
	return r.Median()
}

func (b *bench) smallPairs(ours, base smallRun) (pairs smallPairs, err error) {
	for i := range b.times {
		var t [2]smallTimes
		for k := range 2 {
			j := (k + i) % 2 // who goes first alternates
			if t[j], err = b.smallProcess([]smallRun{ours, base}[j]); err != nil {
				return nil, err
			}
		}
		pairs = append(pairs, t)
	}
	return pairs, nil
}

// smallProcess runs a child in memory that the system has to find anew.
func (b *bench) smallProcess(of smallRun) (t smallTimes, err error) {
	touch(reclaimMiB << 20)
	arg, err := json.Marshal(of)
	if err != nil {
		return t, err
	}
	cmd := exec.CommandContext(b.ctx, os.Args[0], smallChild+string(arg))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return t, fmt.Errorf("%s: %w", of.Dir, err)
	}
	return t, json.Unmarshal(out, &t)
}

const (
	// reclaimMiB is what is touched and freed before each process, because memory that a host has
	// never given, or has taken back, costs several times as much at first touch.
	reclaimMiB    = 2 << 10
	reclaimedNote = "after 2 GiB were touched and freed"
)

// runSmallChild runs the child that the arguments ask for, if they do.
func runSmallChild(args []string) (asked bool, err error) {
	if len(args) != 2 || !strings.HasPrefix(args[1], smallChild) {
		return false, nil
	}
	var of smallRun
	if err := json.Unmarshal([]byte(args[1][len(smallChild):]), &of); err != nil {
		return true, err
	}
	t, err := of.run()
	if err != nil {
		return true, err
	}
	return true, json.NewEncoder(os.Stdout).Encode(t)
}

// timer takes the times between epochs.
type timer struct {
	at    time.Time
	used  time.Duration
	first bool
	smallTimes
}

func newTimer() timer { return timer{at: time.Now(), used: cpu(), first: true} }

// epoch ends the first epoch, or all others of a number.
func (t *timer) epoch(n uint64) {
	took, used := time.Since(t.at).Seconds(), (cpu() - t.used).Seconds()
	if t.first {
		t.Cold, t.ColdCPU = took, used
	} else {
		t.Steady, t.SteadyCPU = took/float64(n), used/float64(n)
	}
	t.first, t.at, t.used = false, time.Now(), cpu()
}

// unmapped is a store whose objects are no objstore.Mapper.
type unmapped struct{ objstore.Store }

func (s unmapped) Open(ctx context.Context, name string) (objstore.Object, error) {
	object, err := s.Store.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	return struct{ objstore.Object }{object}, nil
}

func (r *smallRun) run() (t smallTimes, err error) {
	b := &bench{ctx: context.Background(), cores: runtime.GOMAXPROCS(0)}
	clock := newTimer()
	store, err := local.New(r.Dir, local.Options{})
	if err != nil {
		return t, err
	}
	var from objstore.Store = store
	if r.Unmapped {
		from = unmapped{store}
	}
	ds, err := reader.Open(b.ctx, from, reader.Options{})
	if err != nil {
		return t, err
	}
	defer ds.Close()
	clock.Samples = ds.NumSamples()
	if !r.Decode && !r.Sums && r.Gather == 0 {
		return r.stream(b, ds, &clock)
	}
	pass, err := r.floor(b, ds)
	if err != nil {
		return t, err
	}
	clock = newTimer()
	clock.Samples = ds.NumSamples()
	for i := range r.Epochs {
		if err := pass(); err != nil {
			return t, err
		}
		if i == 0 {
			clock.epoch(1)
		}
	}
	clock.epoch(r.Epochs - 1)
	return clock.smallTimes, nil
}

// floor is what a stream is compared with.
func (r *smallRun) floor(b *bench, ds *reader.Dataset) (func() error, error) {
	if r.Gather > 0 && r.Sums {
		read, _, err := preadCRC(r.Dir, ds, b, b.cores, int(r.Memory)/b.cores)
		gather := r.gather(b, ds.NumSamples())
		return func() error { return errors.Join(read(), gather()) }, err
	}
	if r.Sums {
		window := 0
		if r.Window {
			window = int(r.Memory) / b.cores
		}
		pass, _, err := preadCRC(r.Dir, ds, b, b.cores, window)
		return pass, err
	}
	if r.Gather > 0 && !r.Decode {
		return r.gather(b, ds.NumSamples()), nil
	}
	all, _, err := b.frames(ds, r.Dir)
	decode := decodeAll(all, b.cores)
	if err != nil || r.Gather == 0 {
		return decode, err
	}
	gather := r.gather(b, ds.NumSamples())
	return func() error { return errors.Join(decode(), gather()) }, nil
}

// gather gathers as many rows as the data set has, with all cores, each from a window of its share.
func (r *smallRun) gather(b *bench, rows uint64) func() error {
	window := make([]byte, r.Memory)
	clear(window)
	order := shuffledRows(len(window) / r.Gather)
	return func() error {
		var g errgroup.Group
		for k := range b.cores {
			g.Go(func() error {
				share := order[len(order)*k/b.cores : len(order)*(k+1)/b.cores]
				for left := int(rows) / b.cores; left > 0; left -= len(share) {
					gatherRows(window, share[:min(left, len(share))], r.Gather, true)
				}
				return nil
			})
		}
		return g.Wait()
	}
}

func (r *smallRun) stream(b *bench, ds *reader.Dataset, clock *timer) (t smallTimes, err error) {
	o := shuffled
	o.ShuffleMemory, o.GlobalBatch, o.World, o.Epochs = r.Memory, r.Batch, 1, r.Epochs
	o.Workers = b.cores
	if r.Rows {
		o.Rows = reader.RowsReady
	}
	s, err := ds.Stream(b.ctx, o)
	if err != nil {
		return t, err
	}
	defer s.Close()
	seen := uint64(0)
	for batch, err := range s.Batches(b.ctx) {
		if err != nil {
			return t, err
		}
		seen += uint64(batch.Len())
		if clock.first && batch.NextEpoch > 0 {
			clock.epoch(1)
		}
	}
	clock.epoch(r.Epochs - 1)
	if want := r.Epochs * clock.Samples; seen != want {
		return t, fmt.Errorf("%d samples of %d came", seen, want)
	}
	return clock.smallTimes, nil
}

// smallGather measures rows of a window that are gathered at random into a batch: the least that a
// shuffled stream of rows does, and numpy's way to do it.
func (b *bench) smallGather() error {
	window := make([]byte, 2*b.mib<<20)
	for i := range window {
		window[i] = byte(i >> 3)
	}
	for _, row := range []int{200, 4098} {
		var plain, touched table.Sample
		order := shuffledRows(len(window) / row)
		for range b.times {
			for _, touch := range []bool{false, true} {
				begin := time.Now()
				gatherRows(window, order, row, touch)
				rate := float64(len(order)) / time.Since(begin).Seconds() / 1e6
				if touch {
					touched = append(touched, rate)
				} else {
					plain = append(plain, rate)
				}
			}
		}
		b.Info("small", fmt.Sprintf("gather rows of %d B at random from %d MiB", row, len(window)>>20), touched, "M/s",
			fmt.Sprintf("%.1f GB/s with one goroutine; %.2f M/s without a pass that touches the rows first", touched.Median()*float64(row)/1e3, plain.Median()))
	}
	return nil
}

// shuffledRows are the numbers below n at random.
func shuffledRows(n int) []int32 {
	order := make([]int32, n)
	for i, k := range rand.New(rand.NewPCG(1, 2)).Perm(n) {
		order[i] = int32(k)
	}
	return order
}

// gatherRows copies the rows in batches of 1,024. The pass that touches is 64 rows ahead, so that a
// processor waits for many lines of memory at a time.
func gatherRows(window []byte, order []int32, row int, touch bool) {
	const batch, ahead = 1024, 64
	dst, sum := make([]byte, batch*row), byte(0)
	for i, k := range order {
		if touch && i%ahead == 0 {
			for _, k := range order[i:min(i+ahead, len(order))] {
				for p := int(k) * row; p < int(k+1)*row; p += 64 {
					sum += window[p]
				}
			}
		}
		to := i % batch * row
		copy(dst[to:to+row], window[int(k)*row:])
	}
	runtime.KeepAlive(sum)
}
