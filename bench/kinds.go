package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/shardtool/shardtool/bench/table"
	"github.com/shardtool/shardtool/ingest"
)

// kinds measures reading each kind of source against the library that owns the format, row by row
// as it gives them to Python, and the memory of packing it.
func (b *bench) kinds() error {
	python := b.others("kinds")
	if python == "" {
		return nil
	}
	for _, kind := range []string{"Parquet", "Arrow", "datasets", "JSON Lines", "JSON list", "CSV", "TFRecord", "MDS",
		"tar", "zip", "folder", "npy", "Megatron"} {
		for _, size := range []string{"large", "small"} {
			if err := b.kind(python, kind, size); err != nil {
				return fmt.Errorf("%s: %w", kind, err)
			}
		}
	}
	return nil
}

func (b *bench) kind(python, kind, size string) error {
	dir := filepath.Join(b.dir, "kind")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	mib := b.mib
	if size == "small" { // many more rows
		mib /= 8
	}
	var src string
	if err := b.ask(&src, python, "kinds.py", "make", kind, dir, strconv.Itoa(mib), size); err != nil {
		return err
	}
	var r, used, our, base table.Sample
	rows := int64(0)
	for range b.times {
		runtime.GC()
		begin, before := time.Now(), cpu()
		n, err := b.rows(src)
		if err != nil {
			return err
		}
		seconds, processor := time.Since(begin).Seconds(), (cpu() - before).Seconds()
		var theirs struct {
			Rows         int64
			Seconds, CPU float64
		}
		if err := b.ask(&theirs, python, "kinds.py", "read", kind, src); err != nil {
			return err
		}
		if rows = theirs.Rows; rows != n {
			return fmt.Errorf("%d rows, and its library reads %d", n, rows)
		}
		r, used = append(r, theirs.Seconds/seconds), append(used, theirs.CPU/processor)
		our, base = append(our, seconds), append(base, theirs.Seconds)
	}
	b.AtLeast("kinds", fmt.Sprintf("%s, %s rows / its library", kind, size), r, "x", 1,
		fmt.Sprintf("%.0f rows/s against %.0f; by processor time %.2f x", float64(rows)/our.Median(),
			float64(rows)/base.Median(), used.Median()))
	bin, err := b.binary()
	if err != nil {
		return err
	}
	pack := exec.CommandContext(b.ctx, bin, "pack", "--quiet", src, filepath.Join(dir, "packed"))
	if out, err := pack.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	usage := pack.ProcessState.SysUsage().(*syscall.Rusage)
	b.AtMost("kinds", fmt.Sprintf("%s, %s rows: memory of pack", kind, size),
		table.One(float64(usage.Maxrss)/1024), "MiB", 512, "the most that was resident")
	return nil
}

// rows reads a source to its end.
func (b *bench) rows(src string) (rows int64, err error) {
	in, err := ingest.Open(b.ctx, []string{src}, ingest.Options{})
	if err != nil {
		return 0, err
	}
	defer in.Close()
	for {
		if _, err := in.Source.Next(b.ctx); err == io.EOF {
			return rows, nil
		} else if err != nil {
			return rows, err
		}
		rows++
	}
}
