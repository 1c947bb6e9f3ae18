package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/objstore/cache"
	"github.com/shardtool/shardtool/reader"
)

type stageFlags struct {
	order orderFlags
	cache cacheFlags
	outputFlags
}

func newStage() *cobra.Command {
	var f stageFlags
	cmd := &cobra.Command{
		Use:   "stage DATASET|MIX.yaml",
		Short: "Fill the local cache before a job",
		Long: `Read the data that a job will read, through the cache that it will use, which the job finds there whatever its order.
Give the same DATASET and --cache. Everything fetched is checked. It ends after the given epochs, or when the cache is
full.

Without a rank it fetches the whole data set; of a mix, the samples that the given epochs read of each source. On a
host that runs one of several ranks, give its order flags, --rank and --world-size, and --affinity run if later epochs
should find the same data.`,
		Example: `  shardtool stage s3://bucket/train --cache /nvme/cache --cache-size 500GiB
  shardtool stage s3://bucket/train --cache /nvme/cache --shuffle --affinity run --world-size 16 --rank 3
  shardtool stage mix.yaml --cache /nvme/cache --shuffle --epochs 1`,
		Args: usageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error { return runStage(cmd, args[0], &f) },
	}
	f.order.add(cmd)
	f.order.layers.add(cmd)
	f.order.addCheckpointIn(cmd)
	f.order.mix.add(cmd)
	f.cache.add(cmd)
	f.order.addReading(cmd, "decode with this many threads (0: the CPUs this process may use)",
		"bytes of blocks held and in flight (default: sized by the order)")
	titled(cmd, "Speed and memory")
	f.outputFlags.add(cmd, "print as JSON")
	return cmd
}

// stageJSON is what stage reports.
type stageJSON struct {
	Samples uint64       `json:"samples"`
	Blocks  uint64       `json:"blocks"`
	Fetched int64        `json:"fetched"`           // ranges from the source
	Found   int64        `json:"found"`             // ranges from the cache
	Bytes   int64        `json:"bytes"`             // from the source
	Used    int64        `json:"used"`              // what the cache holds. It may be of several data sets.
	Size    int64        `json:"size"`              // its bound
	Sources []sourceJSON `json:"sources,omitempty"` // of a mix
	Full    bool         `json:"full"`              // it was full before the end
}

// sourceJSON describes what was delivered of a source of a mix.
type sourceJSON struct {
	Name    string `json:"name"`
	Samples uint64 `json:"samples"`
	Bytes   uint64 `json:"bytes"` // of fields
}

func runStage(cmd *cobra.Command, arg string, f *stageFlags) error {
	if f.cache.dir == "" {
		return usagef("give --cache DIR: the folder to fill, the same that the job uses")
	}
	if err := cmp.Or(f.order.fill(), f.order.fillReading()); err != nil {
		return err
	}
	f.order.opt.Epochs = cmp.Or(f.order.opt.Epochs, 1)
	ctx, c, err := f.cache.open(cmd.Context())
	if err != nil {
		return err
	}
	defer c.Close()
	in, err := f.order.input(ctx, cmd.ErrOrStderr(), arg)
	if err != nil {
		return err
	}
	defer in.Close()
	limitMemory(in.Stream.Info().Memory, 0)
	begin := time.Now()
	bar := newProgress(cmd.ErrOrStderr(), "stage", samplesOf(f.order.left(in.samples, in.epoch, in.position)), f.quiet)
	r, err := f.fill(cmd, in.Stream, c, bar)
	bar.end()
	if err != nil {
		return err
	}
	return present(cmd, f.json, r, func(w io.Writer) {
		state := "all of it is in the cache"
		if r.Full {
			state = "the cache is full, the rest will come from the source: see --cache-size"
		}
		fmt.Fprintf(w, "%s read in %v: %s found, %s fetched (%s); %s of %s in use; %s\n",
			plural(r.Samples, "sample"), time.Since(begin).Round(100*time.Millisecond), plural(r.Found, "range"),
			plural(r.Fetched, "range"), bytesText(uint64(r.Bytes)),
			bytesText(uint64(r.Used)), bytesText(uint64(r.Size)), state)
		for _, s := range r.Sources {
			fmt.Fprintf(w, "%s: %s, %s of fields\n", s.Name, plural(s.Samples, "sample"), bytesText(s.Bytes))
		}
	})
}

// fill reads until the end, or until the cache is full.
func (f *stageFlags) fill(cmd *cobra.Command, s *reader.Stream, c *cache.Cache,
	bar *progress) (r stageJSON, err error) {
	ctx := cmd.Context()
	for {
		b, err := s.Next(ctx)
		if err != nil && !errors.Is(err, io.EOF) {
			return r, err
		}
		if err == nil {
			r.Samples += uint64(len(b.Samples))
		}
		st := c.Stats()
		bar.set(int64(r.Samples), fmt.Sprintf("%s, %s kept", bytesText(uint64(st.MissBytes+st.HitBytes)),
			bytesText(uint64(st.Used))))
		r.Full = st.Refused > 0
		// A few refusals may be of large pieces, while smaller ones still fit.
		if full := st.Refused > 64 && st.Refused > st.Kept/8; err != nil || full ||
			(f.order.limit > 0 && r.Samples >= uint64(f.order.limit)) {
			for _, x := range s.Stats().Sources {
				r.Sources = append(r.Sources, sourceJSON{x.Name, x.Samples, x.Bytes})
			}
			r.Blocks, r.Fetched, r.Found, r.Bytes, r.Used, r.Size = s.Stats().Blocks, st.Misses, st.Hits+st.Shared,
				st.MissBytes, st.Used, st.Size
			if st.Errors > 0 {
				return r, fmt.Errorf("--cache %s: %d failures to use the folder: see the warnings above", f.cache.dir,
					st.Errors)
			}
			return r, nil
		}
	}
}
