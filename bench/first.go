package main

import (
	"fmt"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/shardtool/shardtool/bench/table"
	"github.com/shardtool/shardtool/reader"
)

// first measures how long a loop waits for its first batch of 256 with the defaults: from opening
// the data set in Go, from making a loader in Python, and beside them WebDataset. The page cache is
// warm, the process is not: memory is given back to the system before each reading in Go, and each
// reading in Python is a process.
func (b *bench) first(dir string) error {
	var took table.Sample
	for range b.times {
		debug.FreeOSMemory()
		begin := time.Now()
		if err := b.firstOf(dir); err != nil {
			return err
		}
		took = append(took, 1000*time.Since(begin).Seconds())
	}
	b.AtMost("start", fmt.Sprintf("%d MiB of 3 KB text: first batch of 256 in Go, with the defaults", 4*b.mib), took,
		"ms", 100, "")
	return b.firstInPython(dir)
}

// firstOf opens a data set and takes a batch.
func (b *bench) firstOf(dir string) error {
	ds, err := b.open(dir, reader.Options{})
	if err != nil {
		return err
	}
	defer ds.Close()
	return b.batches(ds, firstDefaults(), 1)()
}

func firstDefaults() reader.StreamOptions {
	return reader.StreamOptions{Shuffle: true, Seed: 1}
}

func (b *bench) firstInPython(dir string) error {
	python, err := b.python("webdataset=="+release("webdataset"), "numpy")
	if err != nil {
		return err
	}
	plain, err := b.dataset("large text", true)
	if err != nil {
		return err
	}
	archives, err := filepath.Glob(filepath.Join(plain, "*.tar"))
	if err != nil {
		return err
	}
	var ours, theirs table.Sample
	for range b.times {
		var our, their float64
		if err := b.ask(&our, python, "first.py", "shardtool", dir); err != nil {
			return err
		}
		if err := b.ask(&their, python, "first.py", append([]string{"webdataset"}, archives...)...); err != nil {
			return err
		}
		ours, theirs = append(ours, our), append(theirs, their)
	}
	b.AtMost("start", "the same in Python, imports not counted", ours, "ms", 130, "the start of the child among it")
	b.Info("start", "the same by WebDataset "+release("webdataset")+", shuffle(5000, initial=5000)", theirs, "ms",
		fmt.Sprintf("plain tars, no checks; its first batch is drawn from the first 5,000 samples of one archive of %d",
			len(archives)))
	return nil
}
