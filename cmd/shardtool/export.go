package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/hint"
	"github.com/shardtool/shardtool/internal/format/names"
	"github.com/shardtool/shardtool/internal/input/recognise"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/address"
	"github.com/shardtool/shardtool/open"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/export"
)

type exportFlags struct {
	as, out string
	workers int
	memory  int64
	view    viewFlags
	share   fieldFlags
	outputFlags
}

func newExport() *cobra.Command {
	var f exportFlags
	cmd := &cobra.Command{
		Use:   "export DATASET OUT",
		Short: "Write the data set in a form that other programs read",
		Long: `Write a data set to a folder or a store, in a form that other programs read:

  tar        each shard as a plain tar: tar, WebDataset, Hugging Face datasets
  dali       and an .idx file beside each, for NVIDIA DALI's fn.readers.webdataset. Names cannot have spaces
  wids       and wids.json beside them, for wids.ShardListDataset. Names have at most 100 bytes
  energon    with names that Megatron Energon reads; run "energon prepare" on them, which indexes them
  hf         Parquet files with types, and a card: for load_dataset(OUT) of Hugging Face datasets
  megatron   NAME.bin and NAME.idx with the tokens of one field: a sample is a document
  croissant  only croissant.json, which describes the shards that there are

Every byte is checked. .export-FORM.json, which lists the files and their samples, is written last: without it the
export is not complete. Several forms may share a place. After an interruption, run the same command again: existing
files are compared with the data set and kept. The shards of a data set packed with --format tar are plain tars
already; give its own folder as OUT to add only the indexes. Of a view, DATASET#VIEW, or with --where or --keys, the
files have only the chosen samples. hf and megatron take fields with --fields, and fields of layers with --layer.`,
		Example: `  shardtool export out/ tars/
  shardtool export s3://bucket/train /nvme/train --as dali
  shardtool export out/ hub/ --as hf --where 'score >= 3'
  shardtool export tokens/ megatron/ --as megatron --fields tokens.npy`,
		Args: usageArgs(cobra.RangeArgs(1, 2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				if f.out != "" {
					return usagef("give the folder or store to write to once: %s, or --out %s", args[1], f.out)
				}
				f.out = args[1]
			}
			return runExport(cmd, args[0], &f)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.as, "as", string(export.Tar), "tar, dali, wids, energon, hf, megatron or croissant")
	fl.StringVar(&f.out, "out", "", "the folder or store to write to, in place of OUT")
	fl.IntVar(&f.workers, "workers", 0, "decode with this many threads (0: the CPUs this process may use)")
	sizeVar(cmd, &f.memory, "memory", 256<<20, "bytes of blocks in flight")
	f.view.add(cmd)
	f.share.add(cmd)
	f.outputFlags.addWriting(cmd)
	return cmd
}

// exportJSON is what export prints.
type exportJSON struct {
	Dataset string      `json:"dataset"`
	Out     string      `json:"out"`
	As      export.Form `json:"as"`
	Digest  string      `json:"digest"`
	Samples uint64      `json:"samples"`
	Bytes   int64       `json:"bytes"`
	Seconds float64     `json:"seconds"`
	// Archives, and those of an earlier run.
	Shards int `json:"shards"`
	Found  int `json:"found"`

	ShardList []export.Archive `json:"shard_list"`
}

func runExport(cmd *cobra.Command, arg string, f *exportFlags) error {
	if f.out == "" {
		return usagef("name the folder or store to write to: `shardtool export DATASET OUT`")
	}
	if err := checkRun(f.memory, f.workers); err != nil {
		return err
	}
	ctx := cmd.Context()
	to, err := current(ctx, f.out, "%s@%s: give a folder to write to, not a generation of a data set")
	if err != nil {
		return err
	}
	if err := newFolder(f.out, "export", "--as hf writes Parquet files, `shardtool cat DATASET > OUT.tar` makes one tar, and `shardtool export --help` lists the forms"); err != nil {
		return err
	}
	if !objstore.TraitsOf(to).Remote() {
		f.amongOthers(cmd, to)
	}
	workers := cmp.Or(f.workers, runtime.GOMAXPROCS(0))
	// One goroutine writes a shard. Several keep the disk busy; more than a few only wait for it. Those
	// that wait for a store on a network take no processor, and each has a table of hf in memory.
	most := min(8, max(1, int(f.memory/(32<<20))))
	parallel := min(workers, most)
	whole, _, _ := strings.Cut(arg, "#")
	if from, _, err := dataset(ctx, whole); err == nil && f.workers == 0 && f.as != "hf" && objstore.TraitsOf(from).Remote() {
		parallel = most
	}
	ds, view, err := f.open(ctx, arg, reader.Options{Workers: (workers + parallel - 1) / parallel,
		Memory: max(f.memory/int64(parallel), minMemory)})
	if err != nil {
		return err
	}
	defer ds.Close()
	const tables = 64 << 20 // a row group and its pages, in each goroutine
	limitMemory(f.memory, int64(parallel)*tables)
	sweep(ctx, to)
	begin := time.Now()
	bar := newProgress(cmd.ErrOrStderr(), "exporting", bytesOf(int64(ds.Info().DecodedBytes)), f.quiet)
	res, err := export.Run(ctx, ds, to, export.Options{Form: export.Form(f.as), Parallel: parallel, View: view,
		Progress: func(p export.Progress) {
			bar.set(p.Bytes, fmt.Sprintf("%s of %d", plural(p.Shards, "archive"), ds.NumShards()))
		}})
	bar.end()
	switch {
	case errors.Is(err, export.ErrForm):
		if _, unknown := errors.AsType[*hint.OptionError](err); unknown {
			return optionError(hint.With(err, hint.Command("describes them", "export", "--help")))
		}
		return usagef("--as %s: %w", f.as, err)
	case err != nil && stopped(ctx):
		return stoppedError(ctx, err, "the same command continues the export")
	case err != nil:
		return err
	}
	took := time.Since(begin)
	return f.result(cmd, nil, exportJSON{ds.Store().String(), to.String(), res.Form, res.Digest, res.Samples, res.Bytes,
		took.Seconds(), len(res.Shards), res.Found, res.Shards}, func(w io.Writer) {
		fmt.Fprintf(w, "%s: %s in %s, %s%s\ntook %.1fs\n", strings.TrimSuffix(to.String(), "/"),
			plural(res.Samples, "sample"),
			plural(len(res.Shards), "archive"), bytesText(uint64(res.Bytes)), foundText(res.Found), took.Seconds())
		if f.as == "energon" {
			fmt.Fprintf(w,
				"next: energon prepare --non-interactive --sample-type CrudeWebdataset --split-ratio 1,0,0 %s\n", to)
		}
	})
}

// newFolder refuses a folder to be made that is called as a file is: some other form was meant.
func newFolder(out, command, instead string) error {
	place, err := address.Local(out)
	if err != nil || strings.Contains(place, "://") || !recognise.LikeFile(place) {
		return err
	}
	if _, err := os.Stat(place); !errors.Is(err, fs.ErrNotExist) {
		return nil //nolint:nilerr // writing knows more of what is there
	}
	return usagef("%s ends as the name of a file does, and %s writes a folder of files: %s; a folder of this name is %[1]s/", out, command, instead)
}

// amongOthers says when a place has files that are no part of a data set or an export.
func (f *exportFlags) amongOthers(cmd *cobra.Command, to objstore.Store) {
	ctx := cmd.Context()
	for _, ours := range []string{format.ManifestName, ".export-"} {
		for info, err := range to.List(ctx, ours) {
			if err != nil || info.Name == format.ManifestName || strings.HasPrefix(info.Name, ".export-") {
				return
			}
		}
	}
	if name := recognise.Others(ctx, to); name != "" {
		fmt.Fprintf(cmd.ErrOrStderr(), "shardtool: %s has other files too, such as %s, and the archives will lie among them: a folder of its own is easier to copy and to delete\n", shown(f.out), shown(name))
	}
}

// open opens the data set with the samples of its view alone, and returns the view's ID.
func (f *exportFlags) open(ctx context.Context, arg string, opts reader.Options) (*reader.Dataset, string, error) {
	opts.Fields = f.share.fields
	o := opening(ctx, opts)
	o.Layers, o.Where, o.Keys = f.share.layers, f.view.where, f.view.keys
	ds, err := open.Dataset(ctx, arg, o)
	if err != nil {
		return nil, "", explainView(err, optionError)
	}
	if ds.Selection().View() == nil {
		return ds, "", nil
	}
	defer ds.Close()
	if !ds.Selection().View().Subset() {
		return nil, "", usagef("%s: a view with weights has samples more than once, and an archive cannot: choose them with --where or --keys", arg)
	}
	opts.Generation = names.Generation(ds.Info().Tables)
	opts.Removed = ds.Selection().LeftOut()
	if opts.Layers, err = open.Layers(ctx, arg, f.share.layers, nil, o); err != nil {
		return nil, "", err
	}
	only, err := reader.Open(ctx, ds.Store(), opts)
	return only, ds.Selection().ID(), err
}

// foundText describes what an earlier run wrote.
func foundText(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("; %s there already", plural(n, "archive"))
}
