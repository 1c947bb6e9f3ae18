package main

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"github.com/shardtool/shardtool/bench/table"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/order"
	"github.com/shardtool/shardtool/reader/order/mixing"
)

//go:embed first.py
var firstScript string

// first measures how long a loop waits for its first batch of 256 with the defaults: from opening
// the data set in Go, from making a loader in Python, and beside them WebDataset. The page cache is
// warm, the process is not: memory is given back to the system before each reading in Go, and each
// reading in Python is a process.
func (b *bench) first() error {
	dir, err := b.dataset("large text", false)
	if err != nil {
		return err
	}
	blocks, err := b.firstMixing(dir)
	if err != nil {
		return err
	}
	var took table.Sample
	for range b.times {
		debug.FreeOSMemory()
		begin := time.Now()
		if err := b.firstOf(dir); err != nil {
			return err
		}
		took = append(took, 1000*time.Since(begin).Seconds())
	}
	b.AtMost("first", fmt.Sprintf("%d MiB of 3 KB text: first batch of 256 in Go, with the defaults", 4*b.mib), took, "ms", 100, blocks)
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
	return reader.StreamOptions{Order: reader.Order{Shuffle: true, Seed: 1}}
}

// firstMixing reports how well the first ten batches are mixed, for the default head and for
// others, and what the first batch has to decode.
func (b *bench) firstMixing(dir string) (blocks string, err error) {
	ds, err := b.open(dir, reader.Options{})
	if err != nil {
		return "", err
	}
	defer ds.Close()
	t, err := ds.OrderTable(b.ctx)
	if err != nil {
		return "", err
	}
	var vif table.Sample
	var others []string
	for _, head := range []uint32{0, 1, 2} {
		o := firstDefaults()
		o.Head, o.GlobalBatch = head, 256
		params, err := order.Choose(t, o.Choice())
		if err != nil {
			return "", err
		}
		plan, err := order.New([]order.Source{{Table: t, Digest: ds.Info().OrderDigest}}, params)
		if err != nil {
			return "", err
		}
		f, err := mixing.Measure(plan, mixing.Parts(plan.Samples()), 256, nil, mixing.Span{})
		if err != nil {
			return "", err
		}
		drawn, err := firstBlocks(plan)
		if err != nil {
			return "", err
		}
		mb := float64(drawn) * float64(meanBlock(ds)) / 1e6
		if head == 0 {
			vif = table.Sample(f.First)
			blocks = fmt.Sprintf("%d blocks of %d KiB, %.0f MB decoded", drawn, meanBlock(ds)>>10, mb)
			continue
		}
		others = append(others, fmt.Sprintf("%.2f with H = %d (%.0f MB)", table.Sample(f.First).Median(), head, mb))
	}
	b.Info("first", "variance inflation of the first ten batches of 256", vif, "x",
		fmt.Sprintf("H = %d, %s; %s", order.DefaultHead, blocks, strings.Join(others, ", ")))
	return blocks, nil
}

// firstBlocks counts the blocks that the first batch of 256 draws from.
func firstBlocks(plan *order.Plan) (int, error) {
	cursor, err := plan.Seek(0, 0)
	if err != nil {
		return 0, err
	}
	refs, _, err := cursor.NextBatch(nil, order.Split{GlobalBatch: 256, World: 1})
	drawn := map[uint32]bool{}
	for i := range refs {
		drawn[refs[i].Block] = true
	}
	return len(drawn), err
}

func (b *bench) firstInPython(dir string) error {
	python, err := b.python("webdataset=="+webdatasetVersion, "numpy")
	if err != nil {
		return err
	}
	env, err := b.packageEnv()
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
	call := func(args ...string) (ms float64, err error) {
		cmd := exec.CommandContext(b.ctx, python, append([]string{"-c", firstScript}, args...)...)
		cmd.Env = env
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err == nil {
			_, err = fmt.Sscan(string(out), &ms)
		}
		return ms, err
	}
	var ours, theirs table.Sample
	for range b.times {
		our, err := call("shardtool", dir)
		if err != nil {
			return err
		}
		their, err := call(append([]string{"webdataset"}, archives...)...)
		if err != nil {
			return err
		}
		ours, theirs = append(ours, our), append(theirs, their)
	}
	b.AtMost("first", "the same in Python, imports not counted", ours, "ms", 130, "the start of the child among it")
	b.Info("first", "the same by WebDataset "+webdatasetVersion+", shuffle(5000, initial=5000)", theirs, "ms",
		fmt.Sprintf("plain tars, no checks; its first batch is drawn from the first 5,000 samples of one archive of %d", len(archives)))
	return nil
}
