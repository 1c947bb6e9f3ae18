package main

import (
	"fmt"
	"hash/crc32"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sync/errgroup"

	"github.com/shardtool/shardtool/bench/table"
	"github.com/shardtool/shardtool/format/codec"
	"github.com/shardtool/shardtool/reader"
)

// read measures streaming in storage order.
func (b *bench) read() error {
	if err := b.readText(); err != nil {
		return err
	}
	if err := b.readImages(); err != nil {
		return err
	}
	return b.readPython()
}

// scan reads every sample and touches it.
func (b *bench) scan(dir string, opt reader.Options) func() error {
	return func() error {
		ds, err := b.open(dir, opt)
		if err != nil {
			return err
		}
		defer ds.Close()
		n := uint64(0)
		for s, err := range ds.Samples(b.ctx, reader.Range{}) {
			if err != nil {
				return err
			}
			n += uint64(len(s.Fields))
		}
		if n < ds.NumSamples() {
			return fmt.Errorf("%d fields of %d samples", n, ds.NumSamples())
		}
		return nil
	}
}

// sumAll computes the CRC-32C of frames in memory.
func sumAll(all []frame, goroutines int) func() error {
	return func() error {
		var next atomic.Int64
		var g errgroup.Group
		for range goroutines {
			g.Go(func() error {
				for i := next.Add(1) - 1; int(i) < len(all); i = next.Add(1) - 1 {
					if err := codec.CheckFrame(all[i].stored, all[i].row); err != nil {
						return err
					}
				}
				return nil
			})
		}
		return g.Wait()
	}
}

// decodeAll decodes frames that are in memory, on some goroutines: the floor that streaming is held
// against.
func decodeAll(all []frame, goroutines int) func() error {
	return func() error {
		var next atomic.Int64
		var g errgroup.Group
		for range goroutines {
			g.Go(func() error {
				d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.IgnoreChecksum(true))
				if err != nil {
					return err
				}
				defer d.Close()
				var out []byte
				for {
					i := int(next.Add(1)) - 1
					if i >= len(all) {
						return nil
					}
					if need := int(all[i].row.Decoded) + 16; cap(out) < need {
						out = make([]byte, 0, need)
					}
					if out, err = d.DecodeAll(all[i].stored, out[:0]); err != nil {
						return err
					}
				}
			})
		}
		return g.Wait()
	}
}

func (b *bench) readText() error {
	dir, err := b.dataset("text", false)
	if err != nil {
		return err
	}
	ds, err := b.open(dir, reader.Options{})
	if err != nil {
		return err
	}
	defer ds.Close()
	all, decoded, err := b.frames(ds, dir)
	if err != nil {
		return err
	}
	detail := func(our, base table.Sample) string {
		return fmt.Sprintf("%s against %s", mbs(decoded, our.Median()), mbs(decoded, base.Median()))
	}
	for _, c := range []struct {
		n    int
		goal float64
	}{{1, 0.95}, {2, 0.93}} {
		r, our, base, err := b.ratio(b.scan(dir, reader.Options{Workers: c.n}), decodeAll(all, c.n))
		if err != nil {
			return err
		}
		b.AtLeast("read", fmt.Sprintf("text 3 KB, %d goroutines / DecodeAll of frames in memory", c.n), r, "x", c.goal, detail(our, base))
	}
	r, _, _, err := b.ratio(b.scan(dir, reader.Options{Workers: 2}), b.scan(dir, reader.Options{Workers: 1}))
	if err != nil {
		return err
	}
	r0, _, _, err := b.ratio(decodeAll(all, 2), decodeAll(all, 1))
	if err != nil {
		return err
	}
	b.AtLeast("read", "text: two goroutines / one", r, "x", 1.85, fmt.Sprintf("DecodeAll alone gains %.2fx here", r0.Median()))
	r, _, _, err = b.ratio(b.scan(dir, reader.Options{Workers: 2}), sumAll(all, 2))
	if err != nil {
		return err
	}
	for i, share := range r {
		r[i] = 1 - share
	}
	b.AtLeast("read", "text: verified / unverified", r, "x", 0.97, "one less the time that CRC-32C of every frame takes by itself")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := b.scan(dir, reader.Options{Workers: 2})(); err != nil {
		return err
	}
	runtime.ReadMemStats(&after)
	per := float64(after.Mallocs-before.Mallocs) / float64(ds.NumSamples())
	b.AtMost("read", "text: allocations a sample", table.One(per), "", 0.05, fmt.Sprintf("%d allocations in all, opening included, for %d samples", after.Mallocs-before.Mallocs, ds.NumSamples()))
	return nil
}

// preadCRC reads the bytes of all frames from their files and sums them: the floor for data that is
// stored raw.
//
// With a window, what is read goes to that much memory of a goroutine in turn, as a shuffled stream
// has to: no cache holds it.
func preadCRC(dir string, ds *reader.Dataset, b *bench, goroutines, window int) (func() error, int64, error) {
	pieces, err := b.places(ds, dir)
	if err != nil {
		return nil, 0, err
	}
	total := int64(0)
	for _, p := range pieces {
		total += int64(p.row.Stored)
	}
	table := crc32.MakeTable(crc32.Castagnoli)
	bufs := make([][]byte, goroutines)
	for i := range bufs {
		bufs[i] = make([]byte, window)
		clear(bufs[i]) // has it from the system
	}
	return func() error {
		var next atomic.Int64
		var g errgroup.Group
		for k := range goroutines {
			g.Go(func() error {
				at := 0
				for {
					i := int(next.Add(1)) - 1
					if i >= len(pieces) {
						return nil
					}
					p := pieces[i]
					size := int(p.row.Stored)
					if len(bufs[k]) < size {
						bufs[k] = make([]byte, size)
					}
					if at+size > len(bufs[k]) {
						at = 0
					}
					buf := bufs[k][at : at+size]
					at += size
					if _, err := p.file.ReadAt(buf, p.offset); err != nil {
						return err
					}
					crc32.Checksum(buf, table)
				}
			})
		}
		return g.Wait()
	}, total, nil
}

func (b *bench) readImages() error {
	dir, err := b.dataset("images", false)
	if err != nil {
		return err
	}
	ds, err := b.open(dir, reader.Options{})
	if err != nil {
		return err
	}
	defer ds.Close()
	base, total, err := preadCRC(dir, ds, b, 2, 0)
	if err != nil {
		return err
	}
	r, our, bas, err := b.ratio(b.scan(dir, reader.Options{Workers: 2}), base)
	if err != nil {
		return err
	}
	b.AtLeast("read", "incompressible 100 KB, 2 goroutines / pread + CRC-32C", r, "x", 0.75,
		fmt.Sprintf("%s against %s", mbs(total, our.Median()), mbs(total, bas.Median())))
	return nil
}

// readPython reads the same samples from plain tars with Python's tarfile, in its fastest form.
func (b *bench) readPython() error {
	dir, err := b.dataset("text", false)
	if err != nil {
		return err
	}
	plain, err := b.dataset("text", true)
	if err != nil {
		return err
	}
	files, err := shardFiles(plain)
	if err != nil {
		return err
	}
	const script = `
import sys, tarfile, time
t = time.perf_counter()
n = 0
for f in sys.argv[1:]:
    with tarfile.open(f, "r:") as tar:
        for m in tar:
            n += len(tar.extractfile(m).read())
            tar.members = []
print(time.perf_counter() - t)
`
	args := []string{"-c", script}
	for _, f := range files {
		if strings.HasSuffix(f, ".tar") {
			args = append(args, f)
		}
	}
	for _, c := range []struct{ dir, name string }{{plain, "of the same tars"}, {dir, "compressed"}} {
		var r, py table.Sample
		scan := b.scan(c.dir, reader.Options{Workers: 2})
		if err := scan(); err != nil {
			return err
		}
		for range 3 {
			out, err := exec.Command("python3", args...).Output()
			if err != nil {
				return err
			}
			seconds, err := strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
			if err != nil {
				return err
			}
			our, err := seconds1(scan)
			if err != nil {
				return err
			}
			r, py = append(r, seconds/our), append(py, seconds)
		}
		name := fmt.Sprintf("text 3 KB, 2 goroutines, %s / Python tarfile over plain tars", c.name)
		detail := fmt.Sprintf("tarfile takes %.2f s in one process, start-up not counted", py.Median())
		if c.dir == plain {
			b.AtLeast("read", name, r, "x", 15, detail)
		} else {
			b.Info("read", name, r, "x", detail+"; bound by DecodeAll")
		}
	}
	return nil
}
