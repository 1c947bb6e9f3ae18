package main

import (
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/ingest"
	"github.com/shardtool/shardtool/internal/format/names"
	"github.com/shardtool/shardtool/internal/input/tally"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/writer"
)

func newLayer() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "layer",
		Short: "Add fields to the samples of a data set without writing it again",
		Long: `A layer is a data set that adds fields to the samples of another one, its base: new captions, embeddings, scores, tokens.
It has the samples of the base in the same blocks, and is in layers/NAME below the base or at an address of its own.
It does not change the base: digest, generations and checkpoints stay.`,
		Example: "  shardtool layer add photos/ captions captions.parquet --key id --columns caption\n  shardtool layer ls photos/",
		Args:    knownCommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newLayerAdd(), newLayerLs(), newLayerRemove())
	return cmd
}

// layerFlags are the flags of layer add. Flags of pack that determine the samples apply too.
type layerFlags struct {
	pack     packFlags
	copied   []string
	replaces []string
	aligned  bool
	update   bool
	large    bool
	missing  string
	unknown  string
}

func newLayerAdd() *cobra.Command {
	var f layerFlags
	p := &f.pack
	cmd := &cobra.Command{
		Use:   "add DATASET NAME|ADDRESS [SOURCE…]",
		Short: "Write a layer from rows, files, archives or data sets",
		Long: `Write a layer of DATASET: in layers/NAME below it, or at an address such as ./mine or s3://bucket/mine. The sources are as
for ` + "`shardtool pack`" + `: files of rows (Parquet, JSON Lines, CSV), folders of files, tar archives, data sets and other layers.

The rows of a source may be in any order: their keys say which samples they belong to. They are sorted in --temp-dir, in temporary files
as large as their fields. A key that no sample has, a sample without a row, and a key that the source has twice are
errors that name the place; --unknown skip and --missing allow accept the first two. Rows of samples that were removed are left
out. With --aligned row i is sample i, and keys are not compared; .npy files may then have numbers of any type. --copy copies fields of the data set itself, so that a job that
needs only these does not read the others.

Shards and blocks end where the data set's do. Rows that hold arrays of one type and shape are stacked. A layer whose mean block would
hold more than 16 MiB is refused without --large-blocks: pack such fields as a data set of their own.

Nothing is visible before the end. To continue after a kill, repeat the command with --resume. --append makes shards for the samples
that the data set has gained since. --overwrite publishes a new generation; with --update, samples without a row keep what they have.
A field that the data set or another layer has too is an error when both are read, unless --replaces names it; --copy implies it.`,
		Example: `  shardtool layer add photos/ captions captions.parquet --key id --columns caption
  shardtool layer add photos/ clip emb.npy --aligned
  shardtool layer add photos/ text --copy txt,json
  shardtool layer add photos/ captions fixed.parquet --key id --columns caption --update
  shardtool layer add photos/ s3://mine/captions 'captions/*.jsonl' --key id --missing allow`,
		Args: usageArgs(cobra.MinimumNArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) error { return runLayerAdd(cmd, args, &f) },
	}
	fl := cmd.Flags()
	fl.StringVar(&p.opt.Name, "name", "data", "beginning of the shards' names")
	fl.StringVar(&p.level, "level", "default", "compression: fastest, default, better or best")
	fl.StringVar(&p.kind, "format", "tar.zst", "tar.zst, or tar: uncompressed, with the index in a sidecar")
	fl.StringVar(&p.layout, "layout", "auto",
		"auto: stacked where all samples of a shard have equal arrays (.npy); stacked; samples: never stacked")
	fl.BoolVar(&f.large, "large-blocks", false, "accept blocks of more than 16 MiB")
	titled(cmd, "Shards")
	p.addSources(cmd)
	fl.BoolVar(&f.aligned, "aligned", false, "row i is sample i of the data set; keys are not compared")
	fl.StringSliceVar(&f.copied, "copy", nil, "take these fields of the data set itself, as a,b; without sources")
	titled(cmd, "Sources")
	fl.StringVar(&f.missing, "missing", "fail", "a sample without a row: fail, or allow it to have nothing")
	fl.StringVar(&f.unknown, "unknown", "fail", "a row whose key no sample has: fail, or skip it and count it")
	titled(cmd, "Faults")
	fl.IntVar(&p.opt.Workers, "workers", 0, "compress with this many threads (0: the CPUs this process may use)")
	sizeVar(cmd, &p.opt.Memory, "memory", 256<<20, "bytes of blocks in flight, and of rows while they are sorted")
	fl.StringVar(&p.opt.TempDir, "temp-dir", "", "folder for spills of sorting (default: the system's)")
	titled(cmd, otherFlags)
	fl.StringSliceVar(&f.replaces, "replaces", nil,
		"fields and attributes of the data set, or of other layers, that this layer's replace, as a,b")
	fl.BoolVar(&p.opt.Resume, "resume", false, "continue an interrupted command of the same sources and options")
	fl.BoolVar(&p.overwrite, "overwrite", false, "publish a new generation that replaces the current one")
	fl.BoolVar(&p.append, "append", false,
		"add shards for samples that the data set has gained since, and leave out rows of other samples")
	fl.BoolVar(&f.update, "update", false, "publish a new generation; samples without a row keep what they have")
	titled(cmd, "Publishing")
	p.outputFlags.addWriting(cmd)
	return cmd
}

// check refuses flags that exclude each other, and sets those that others imply.
func (f *layerFlags) check(srcs []string) (err error) {
	p := &f.pack
	switch {
	case len(f.copied) > 0 && len(srcs) > 0:
		return usagef("--copy takes fields of the data set itself: leave the source %s out, or --copy", srcs[0])
	case len(f.copied) == 0 && len(srcs) == 0:
		return usagef("give a source: files of rows, a folder of files, archives or a data set; or --copy FIELD")
	case f.update && (p.append || f.aligned || len(f.copied) > 0):
		return usagef("--update adds rows by their keys: leave --append, --aligned and --copy out")
	case f.aligned && (len(p.in.Rows.Where) > 0 || len(p.in.Include)+len(p.in.Exclude) > 0 || p.rows.nulls == "skip"):
		return usagef("--aligned takes row i for sample i: leave --where, --include, --exclude and --nulls skip out")
	case p.in.Tokens.Length > 0 && !f.aligned:
		return usagef("--pack-tokens makes samples of its own, with keys that no sample has: leave it out")
	case slices.Contains(srcs, stdinName):
		return usagef("a layer cannot be read from standard input: write the rows to a file first")
	}
	p.overwrite = p.overwrite || f.update
	p.onError, p.duplicates = "fail", "keep"
	p.opt.ShardSize, p.opt.BlockSize = 256<<20, 0
	return nil
}

func runLayerAdd(cmd *cobra.Command, args []string, f *layerFlags) error {
	dataset, srcs := args[0], args[2:]
	p := &f.pack
	if _, err := os.Stat(args[1]); err == nil && len(srcs)+len(f.copied) == 0 {
		return usagef("give the layer a name before its source: `shardtool layer add %s NAME %s`", dataset, args[1])
	}
	allow, err := choose("missing", f.missing, "fail", "allow")
	if err != nil {
		return err
	}
	skip, err := choose("unknown", f.unknown, "fail", "skip")
	if err != nil {
		return err
	}
	if err := cmp.Or(f.check(srcs), p.options(cmd)); err != nil {
		return err
	}
	ctx, stderr := cmd.Context(), cmd.ErrOrStderr()
	base, err := wholeDataset(ctx, "layer add", dataset)
	if err != nil {
		return err
	}
	store, err := layerStore(ctx, "layer add", dataset, args[1])
	if err != nil {
		return err
	}
	opt := writer.LayerOptions{Pack: p.opt, ByPlace: f.aligned, InOrder: len(f.copied) > 0,
		Replaces: append(f.replaces, f.copied...), AllowMissing: allow,
		SkipUnknown: skip, Skipped: skipPrinter(stderr), LargeBlocks: f.large}
	if err := writer.CheckLayerTarget(ctx, store, base, opt); err != nil {
		return cmp.Or(ingest.Inside(ctx, srcs, store.String()), packError(ctx, err, resumed))
	}
	limitMemory(p.opt.Memory, encoderMemory(&p.opt)+p.opt.Memory/2)
	sweep(ctx, store)
	begin := time.Now()
	in, err := f.open(cmd, dataset, store.String(), srcs)
	if err != nil {
		return packError(ctx, err, resumed)
	}
	defer in.Close()
	if f.update {
		if opt.Before, opt.Earlier, err = rowsBefore(ctx, store, &p.opt); err != nil {
			return err
		}
		defer opt.Before.Close()
		if opt.Earlier != nil {
			defer opt.Earlier.Close()
		}
	}
	bar := newProgress(stderr, "adding", bytesOf(in.Size), p.quiet)
	opt.Pack = p.opt
	opt.Pack.Log = slog.New(slog.NewTextHandler(stderr, nil))
	opt.Pack.Progress = func(at writer.Progress) {
		bar.set(at.PayloadBytes, fmt.Sprintf("%s, %s", plural(at.Samples, "sample"), plural(at.Shards, "shard")))
	}
	res, err := writer.AddLayer(ctx, store, base, in.Source, opt)
	bar.end()
	if err != nil {
		return packError(ctx, err, resumed)
	}
	before, behind := writer.LeftOut(in.Source)
	left := before.Plus(behind)
	left.Null = res.Left
	names := in.Names()
	names.Listed += left.Total()
	names.LeaveRows(left)
	return printLayer(cmd, &p.outputFlags, base, store, res, names, time.Since(begin))
}

// open opens the sources, or the data set itself with --copy.
func (f *layerFlags) open(cmd *cobra.Command, dataset, target string, srcs []string) (*ingest.Input, error) {
	p := &f.pack
	if len(f.copied) > 0 {
		srcs, p.in.Rows.Columns = []string{dataset}, f.copied
	}
	found, err := findSources(cmd, p, srcs)
	if err != nil {
		return nil, err
	}
	if !found.Datasets() {
		if err := found.Check(cmd.Context(), target); err != nil {
			return nil, err
		}
	}
	if f.aligned {
		found.Align()
	}
	return p.openSources(cmd, found)
}

// layerAddJSON is what layer add prints.
type layerAddJSON struct {
	Dataset    string `json:"dataset"`
	Layer      string `json:"layer"`
	Generation uint64 `json:"generation"`
	Tables     string `json:"tables"`
	runJSON
	// Samples without a row.
	Missing uint64 `json:"missing"`
	// Rows left out: unknown key, removed sample, already in the layer (`--append`).
	Unknown int64 `json:"unknown"`
	Removed int64 `json:"removed"`
	Covered int64 `json:"covered"`
}

// layerLsJSON is what layer ls prints.
type layerLsJSON struct {
	Dataset string              `json:"dataset"`
	Layers  []*writer.LayerInfo `json:"layers"`
}

// layerRemoveJSON is what layer remove prints.
type layerRemoveJSON struct {
	Layer   string `json:"layer"`
	Deleted int    `json:"deleted"` // objects
	Bytes   int64  `json:"bytes"`
}

// printLayer prints what layer add published.
func printLayer(cmd *cobra.Command, f *outputFlags, base, store objstore.Store, res *writer.LayerResult,
	names *tally.Tally, took time.Duration) error {
	return f.result(cmd, names, layerAddJSON{
		Dataset: base.String(), Layer: store.String(), Generation: res.Generation, Tables: res.Tables,
		runJSON: runJSON{res.Samples, res.Shards, res.Blocks, res.Bytes, res.PayloadBytes,
			res.Written, res.Adopted, res.Already, took.Seconds(), namesOf(names, 0)},
		Missing: res.Missing, Unknown: res.Unknown, Removed: res.Removed, Covered: res.Covered,
	}, func(out io.Writer) {
		fmt.Fprintf(out, "%s: a layer over %s in %s, %s of fields stored in %s\n", store, plural(res.Samples, "sample"),
			plural(res.Shards, "shard"),
			bytesText(res.PayloadBytes), bytesText(res.Bytes))
		count := func(n uint64, thing, what string) {
			if n > 0 {
				fmt.Fprintf(out, "%s %s\n", plural(n, thing), what)
			}
		}
		count(res.Missing, "sample", "without a row")
		count(uint64(res.Unknown), "row", "with a key that no sample has, left out")
		count(uint64(res.Removed), "row", "of removed samples, left out")
		count(uint64(res.Covered), "row", "of samples that the layer covers, left out")
		printEnd(out, &res.Result, names, took)
	})
}

func newLayerLs() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "ls DATASET [ADDRESS…]",
		Short: "List the layers of a data set",
		Long: `List the layers in layers/ below DATASET, and those at the addresses: whether each fits, how many samples it covers, its fields and
its bytes. A layer that is behind lacks removals of samples: the next ` + "`shardtool remove`" + ` of the data set brings it up to date, and until then
readers follow the data set.`,
		Example: "  shardtool layer ls photos/\n  shardtool layer ls photos/ s3://mine/captions --json",
		Args:    usageArgs(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			base, err := wholeDataset(cmd.Context(), "layer ls", args[0])
			if err != nil {
				return err
			}
			list, err := inspectLayers(cmd.Context(), "layer ls", args[0], base, args[1:])
			if err != nil {
				return err
			}
			return present(cmd, asJSON, layerLsJSON{base.String(), list},
				func(w io.Writer) { printLayers(w, base, list) })
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the list as JSON")
	return cmd
}

// layersNote ends what is printed about layers.
const layersNote = "layers at other addresses are not known: name them with --layer\n"

// printLayers prints a line for each layer.
func printLayers(out io.Writer, base objstore.Store, list []*writer.LayerInfo) {
	if len(list) == 0 {
		fmt.Fprintf(out, "%s has no layers\n", base)
	}
	for _, l := range list {
		if l.Unpublished {
			fmt.Fprintf(out, "%s: %s; `shardtool layer add --resume` continues, `shardtool layer remove` deletes them\n", shown(cmp.Or(l.Name, l.Layer)), l.Error)
			continue
		}
		if !l.Fits {
			fmt.Fprintf(out, "%s: does not fit: %s\n", shown(cmp.Or(l.Name, l.Layer)), l.Error)
			continue
		}
		var fields []string
		for _, f := range l.Fields {
			fields = append(fields, shown(f.Name))
		}
		fmt.Fprintf(out, "%s: %s, covers %s of %s, %s", shown(cmp.Or(l.Name, l.Layer)), strings.Join(fields, " "),
			countText(l.Covered), plural(l.Samples, "sample"), bytesText(l.Bytes))
		if l.Nothing > 0 {
			fmt.Fprintf(out, ", no row for %s", countText(l.Nothing))
		}
		if len(l.Replaces) > 0 {
			fmt.Fprintf(out, ", replaces %s", shown(strings.Join(l.Replaces, " ")))
		}
		if len(l.Clashes) > 0 {
			fmt.Fprintf(out, ", cannot be read with the data set, which has %s too",
				shown(strings.Join(l.Clashes, " ")))
		}
		if l.Behind > 0 {
			fmt.Fprintf(out, ", behind by %s", plural(l.Behind, "removed sample"))
		}
		fmt.Fprintln(out)
	}
}

func newLayerRemove() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "remove DATASET NAME|ADDRESS",
		Short: "Delete a layer",
		Long: `Delete a layer of DATASET: its manifest first, so that no reader opens it from then on, then its objects. Readers that have it open fail
at the next object that they read. If the command is interrupted, the same command deletes the rest. It also deletes what a killed
` + "`layer add`" + ` has left. A folder with anything but a layer of DATASET is left alone. DATASET is not written.`,
		Example: "  shardtool layer remove photos/ captions",
		Args:    usageArgs(cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			base, err := wholeDataset(cmd.Context(), "layer remove", args[0])
			if err != nil {
				return err
			}
			store, err := layerStore(cmd.Context(), "layer remove", args[0], args[1])
			if err != nil {
				return err
			}
			res, err := writer.RemoveLayer(cmd.Context(), store, base, names.IsLabel(args[1]))
			if err != nil {
				return err
			}
			return present(cmd, asJSON, byName{layerRemoveJSON{store.String(), len(res.Objects), res.Bytes}}, func(w io.Writer) {
				fmt.Fprintf(w, "removed %s: deleted %s of %s\n", store, plural(len(res.Objects), "object"),
					bytesText(uint64(res.Bytes)))
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the result as JSON")
	return cmd
}
