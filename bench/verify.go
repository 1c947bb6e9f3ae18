package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/shardtool/shardtool/format/codec"
	"github.com/shardtool/shardtool/reader"
)

func seconds1(f func() error) (float64, error) {
	runtime.GC()
	begin := time.Now()
	err := f()
	return time.Since(begin).Seconds(), err
}

// command runs a process to its end; output is dropped unless it fails.
func command(name string, args ...string) func() error {
	return func() error {
		if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", name, err, out)
		}
		return nil
	}
}

// verify measures `verify --deep` against `zstd -t` over the same shards, as processes.
func (b *bench) verify() error {
	bin, err := b.binary()
	if err != nil {
		return err
	}
	for _, kind := range []string{"large text", "images"} {
		dir, err := b.dataset(kind, false)
		if err != nil {
			return err
		}
		files, err := shardFiles(dir)
		if err != nil {
			return err
		}
		size := int64(0)
		for _, f := range files {
			info, err := os.Stat(f)
			if err != nil {
				return err
			}
			size += info.Size()
		}
		ours := command(bin, "verify", dir, "--deep", "--quiet")
		zstd := command("zstd", append([]string{"-tq"}, files...)...)
		r, our, base, err := b.ratio(ours, zstd)
		if err != nil {
			return err
		}
		detail := fmt.Sprintf("%.2f s against %.2f s for %d MB stored; ours also compares SHA-256, headers and index", our.Median(), base.Median(), size/1e6)
		if kind == "large text" {
			b.AtLeast("verify", "text: verify --deep / zstd -t", r, "x", 1.3, detail)
			ds, err := b.open(dir, reader.Options{})
			if err != nil {
				return err
			}
			defer ds.Close()
			all, _, err := b.frames(ds, dir)
			if err != nil {
				return err
			}
			if r, _, _, err = b.ratio(decodeAndHash(all, b.cores), zstd); err != nil {
				return err
			}
			b.Info("verify", fmt.Sprintf("text: DecodeAll + SHA-256 of frames in memory on %d cores / zstd -t", b.cores), r, "x", "what verifying identities allows at best: zstd -t has no hash")
		} else {
			b.Info("verify", "incompressible: verify --deep / zstd -t", r, "x", detail)
		}
	}
	return nil
}

// decodeAndHash decodes and hashes frames that are in memory.
func decodeAndHash(all []frame, goroutines int) func() error {
	return func() error {
		var next atomic.Int64
		var g errgroup.Group
		for range goroutines {
			g.Go(func() error {
				d := codec.NewDecoder(false)
				defer d.Close()
				out := make([]byte, 0, 4<<20)
				for {
					i := int(next.Add(1)) - 1
					if i >= len(all) {
						return nil
					}
					var err error
					if out, err = d.Decode(out[:0], all[i].stored, all[i].row); err != nil {
						return err
					}
					sha256.Sum256(out)
				}
			})
		}
		return g.Wait()
	}
}
