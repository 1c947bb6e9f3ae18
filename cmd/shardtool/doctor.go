package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/cmd/shardtool/internal/doctor"
	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/hint"
	"github.com/shardtool/shardtool/internal/input/tally"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/address"
	"github.com/shardtool/shardtool/open"
	"github.com/shardtool/shardtool/writer/source"
)

type doctorFlags struct {
	pack  packFlags // what becomes a sample, and how the report is printed
	limit int64
	write bool
	kind  string // of the sources
	names *tally.Tally
}

func newDoctor() *cobra.Command {
	var f doctorFlags
	cmd := &cobra.Command{
		Use:   "doctor SRC…|DATASET|ADDRESS",
		Short: "Report what would go wrong, and what to do",
		Long: `Examine sources of any kind before they are packed, or a data set, for problems of training jobs: names that
divide into key and field in an unexpected place, duplicate keys, samples torn apart, samples that lack a field, empty
fields, rows that cannot be read, JSON, JPEG and PNG that do not decode, shards too small to stream well.
Flags that choose keys, columns and files mean the same as in pack. All samples are read; --limit reads the first ones.
For a data set it also reports how well the default order mixes it, for batches of 256 on 8 ranks; simulate measures others.

For one address in a store it reports first whether the store can be used: which identity was found, and where; whether it may list
and read; with --write, whether it may publish, by small objects that it deletes again; the round trip; and whether the clocks
differ. No secret is printed. Each failure says what to set. Where the store has no data set and nothing to pack, that is all.
Exits with 1 if it found problems, and with 3 if data is corrupt.`,
		Example: `  shardtool doctor photos/
  shardtool doctor 'data/*.parquet' --key id --limit 10000
  shardtool doctor 'wds/train-{000000..000099}.tar'
  shardtool doctor out/ --json
  shardtool doctor s3://bucket/train --write --limit 1`,
		Args: usageArgs(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.limit < 0 {
				return usagef("--limit %d: give a number of samples, or 0 for all", f.limit)
			}
			args, err := address.Locals(args)
			if err != nil {
				return usagef("%w", err)
			}
			store, err := f.store(cmd, args)
			if err != nil {
				return err
			}
			if store != nil && !store.usable() {
				return f.print(cmd, store, nil, false)
			}
			is, err := isOneDataset(cmd.Context(), args)
			if err != nil {
				return err
			}
			var r *doctor.Report
			if is {
				r, err = f.dataset(cmd.Context(), args[0])
			} else {
				r, err = f.sources(cmd, args)
			}
			if store != nil && exitCode(err) == exitNotFound {
				r, err = nil, nil // an empty place
			}
			if err != nil {
				return err
			}
			return f.print(cmd, store, r, is)
		},
	}
	f.pack.addSources(cmd)
	fl := cmd.Flags()
	fl.Int64Var(&f.limit, "limit", 0, "examine this many samples (0: all)")
	fl.BoolVar(&f.write, "write", false, "an address: try to publish, by small objects that are deleted again")
	f.pack.outputFlags.add(cmd, "print findings as JSON")
	return cmd
}

func (f *doctorFlags) dataset(ctx context.Context, arg string) (*doctor.Report, error) {
	if err := open.Whole(arg); err != nil {
		return nil, err
	}
	ds, err := openDataset(ctx, arg)
	if err != nil {
		return nil, err
	}
	defer ds.Close()
	return doctor.Dataset(ctx, ds, doctor.Options{Limit: f.limit})
}

func (f *doctorFlags) sources(cmd *cobra.Command, args []string) (*doctor.Report, error) {
	ctx := cmd.Context()
	f.pack.opt.Memory, f.pack.in.LeaveUnsafe = 256<<20, true
	if err := f.pack.sourceOptions(cmd); err != nil {
		return nil, err
	}
	found, err := findSources(cmd, &f.pack, args)
	if err != nil {
		return nil, err
	}
	defer found.Close()
	if err := found.Check(ctx, ""); err != nil {
		return nil, err
	}
	stderr := cmd.ErrOrStderr()
	quiet := f.pack.quiet
	f.kind = found.Kind()
	found.Examine = true
	f.pack.quiet = true // the report has what was found
	in, err := f.pack.openSources(cmd, found)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	bar := newProgress(stderr, "examining", bytesOf(in.Size), quiet)
	defer bar.end()
	r, err := doctor.Source(ctx, in.Source, doctor.Options{
		Limit: f.limit, FileNames: found.Named(),
		Progress: func(p doctor.Progress) { bar.set(p.Bytes, plural(p.Samples, "sample")) },
	})
	f.names = in.Names()
	if err == nil && r.Samples == 0 && len(r.Findings) == 0 {
		err = &exitError{exitNotFound, fmt.Errorf("no samples in %s: nothing to examine", strings.Join(args, ", "))}
	}
	return r, err
}

// storeReport is a report on the store of an address.
type storeReport struct{ *doctor.StoreReport }

// store examines the store of a single address. It returns nil for other arguments.
func (f *doctorFlags) store(cmd *cobra.Command, args []string) (*storeReport, error) {
	place, _, remote := strings.Cut(args[0], "://")
	if len(args) != 1 || !remote || strings.ContainsAny(args[0], "*{[") || place == "" {
		if f.write {
			return nil, usagef("--write goes with one address of a store, such as s3://bucket/prefix")
		}
		return nil, nil
	}
	addr, _, _ := open.CutGeneration(args[0])
	store, err := address.Open(cmd.Context(), addr, address.Options{Logger: warnings})
	if err != nil {
		return nil, usagef("%w", err)
	}
	if !objstore.TraitsOf(store).Remote() {
		return nil, nil
	}
	r, err := doctor.Store(cmd.Context(), store, f.write)
	if err != nil {
		return nil, err
	}
	if !f.pack.json {
		err = printStore(cmd.OutOrStdout(), r)
	}
	return &storeReport{r}, err
}

// usable reports whether samples may be readable.
func (r *storeReport) usable() bool {
	return !slices.ContainsFunc(r.Checks, func(c doctor.Check) bool {
		return c.Status == doctor.Failed && (c.Name == "identity" || c.Name == "read" || c.Name == "list" && !r.Dataset)
	})
}

func printStore(w io.Writer, r *doctor.StoreReport) error {
	fmt.Fprintf(w, "%s, at %s", shown(r.Address), shown(cmp.Or(r.Endpoint, "an unknown endpoint")))
	if r.Region != "" {
		fmt.Fprintf(w, ", region %s", shown(r.Region))
	}
	fmt.Fprintln(w)
	for _, c := range r.Checks {
		fmt.Fprintf(w, "%s: %s, %s\n", c.Name, c.Status, shown(c.Detail))
	}
	if r.RoundTrips == 0 {
		return nil
	}
	_, err := fmt.Fprintf(w, "round trip: %.1f ms, the median of %s\n", float64(r.RoundTrip)/1e6,
		plural(r.RoundTrips, "request"))
	return err
}

func (r *storeReport) json() *storeJSON {
	out := &storeJSON{Address: r.Address, Checks: r.Checks, Dataset: r.Dataset, Endpoint: r.Endpoint, Identity: r.Identity,
		From: r.From, Region: r.Region}
	if r.RoundTrips > 0 {
		out.RoundTrip = new(r.RoundTrip.Seconds())
	}
	if r.Clock {
		out.Ahead = new(math.Round(r.Ahead.Seconds()))
	}
	return out
}

// isOneDataset reports whether the arguments are one place with a manifest, even with one that
// cannot be read.
func isOneDataset(ctx context.Context, args []string) (bool, error) {
	if len(args) != 1 || args[0] == stdinName || strings.ContainsAny(args[0], "*{[") {
		return false, nil
	}
	if info, err := os.Stat(args[0]); err == nil && !info.IsDir() {
		return false, nil
	}
	store, _, err := dataset(ctx, args[0])
	if err != nil {
		return false, err
	}
	_, err = store.Stat(ctx, format.ManifestName)
	return err == nil, nil
}

// doctorAdvice is what to do about each kind of finding.
var doctorAdvice = map[doctor.Kind]string{
	doctor.Corrupt:    "pack stops here: fetch or make the file again",
	doctor.DottedName: "everything after the first dot is the field: replace other dots if they belong to the key",
	doctor.DuplicateKey: "pack refuses the second: rename one, in tables choose another --key, or pack the sources apart " +
		"(--duplicate-keys keep allows it between shards)",
	doctor.Empty:        "an empty file is rarely intended: fill it or leave it out",
	doctor.FieldsDiffer: "a training step that expects one set of fields fails on the other: add what is missing, or pack apart",
	doctor.Fused: "they look like samples of their own: replace the dots before the extension, as in cat-0.jpg; " +
		"pack refuses such folders; --sample-rule last-dot makes a sample of each, and first-dot packs them like that",
	doctor.Hidden:      "names that begin with a dot are left out; --include '.*' takes them",
	doctor.MixesLittle: "give more --shuffle-memory, or pack again with a smaller --block-size or with --pack-shuffle",
	doctor.Name:        "rename it: it cannot be a key",
	doctor.NoOrder:     "give a larger --shuffle-memory to the commands that shuffle, or pack again with a smaller --block-size",
	doctor.Null:        "pack stops here" + hintText(hint.Of(source.ErrNulls)),
	doctor.TinyShards:  "each object costs a request and a listing entry: pack again with a larger --shard-size",
	doctor.Undecodable: "training stops or skips here: repair the file or leave it out",
	doctor.Unreadable:  "pack stops here; repair it, leave it out, or use --on-error skip",
	doctor.UpperCase: "WebDataset lower-cases fields, others do not: rename the files, or once they are packed " +
		"`shardtool pack OUT NEW --rename JPEG=jpg` renames a field",
}

// doctorJSON is what doctor prints.
type doctorJSON struct {
	Findings *[]doctor.Finding `json:"findings,omitempty"`
	// Of sources: what they are, and as for `pack`.
	Kind    string               `json:"kind,omitempty"`
	LeftOut map[tally.Rule]int64 `json:"left_out,omitzero"`
	Listed  *int64               `json:"listed,omitempty"`
	// Of a data set, in the order that a job gets by default.
	Mixing *mixingJSON `json:"mixing,omitempty"`

	Samples *int64     `json:"samples,omitempty"` // looked at
	Store   *storeJSON `json:"store,omitempty"`
}

// mixingJSON is how well an order mixes.
type mixingJSON struct {
	GlobalBatch int       `json:"global_batch"`
	Labels      int       `json:"labels"`
	LabelsLeast int       `json:"labels_per_rank_least"` // that a rank sees
	LabelsMean  float64   `json:"labels_per_rank_mean"`
	LocalVIF    float64   `json:"local_vif"` // of one rank's part
	Parameters  orderJSON `json:"parameters"`
	SameBlock   float64   `json:"same_block"` // share of adjacent samples from one block
	Samples     uint64    `json:"samples_measured"`
	VIF         float64   `json:"vif"`
	Pooled      float64   `json:"vif_accumulated"`
	World       int       `json:"world_size"`
}

// storeJSON describes the server of an address, and the requests to it.
type storeJSON struct {
	Address  string         `json:"address"`
	Checks   []doctor.Check `json:"checks"`
	Ahead    *float64       `json:"clock_ahead_seconds,omitempty"`
	Dataset  bool           `json:"dataset"`       // whether there is one
	Endpoint string         `json:"endpoint"`      // the server
	Identity string         `json:"identity"`      // whose requests it sees
	From     string         `json:"identity_from"` // where the credentials are from
	Region   string         `json:"region"`

	RoundTrip *float64 `json:"round_trip_seconds,omitempty"`
}

// print prints the reports, and returns the exit code as an error. The report on the store is
// printed already, unless as JSON; either may be nil.
func (f *doctorFlags) print(cmd *cobra.Command, store *storeReport, r *doctor.Report, ofDataset bool) error {
	result, code := doctorJSON{}, 0
	if store != nil {
		if result.Store = store.json(); !store.OK() {
			code = exitFailed
		}
	}
	var err error
	if r != nil {
		var found int
		found, err = f.printSamples(cmd, r, ofDataset, &result)
		code = max(code, found)
	}
	if f.pack.json {
		err = printJSON(cmd, result)
	}
	if err == nil && code != 0 {
		err = &exitError{code: code}
	}
	return err
}

// printSamples prints a report on samples, or adds it to the JSON.
func (f *doctorFlags) printSamples(cmd *cobra.Command, r *doctor.Report, ofDataset bool,
	result *doctorJSON) (code int, err error) {
	for i := range r.Findings {
		of := &r.Findings[i]
		of.Advice = doctorAdvice[of.Kind]
		switch {
		case of.Kind == doctor.Corrupt && ofDataset:
			of.Advice = "see `shardtool verify --deep`"
		case of.Kind == doctor.Null && f.pack.rows.nulls == "skip":
			of.Advice = "--nulls skip leaves these rows out"
		}
		if code = max(code, exitFailed); of.Kind == doctor.Corrupt {
			code = exitCorrupt
		}
	}
	if !f.pack.json {
		if f.kind != "" {
			fmt.Fprintf(cmd.OutOrStdout(), "sources: %s\n", f.kind)
		}
		printLeft(cmd.OutOrStdout(), f.names)
		return code, printFindings(cmd.OutOrStdout(), r)
	}
	result.Samples, result.Findings, result.Kind = &r.Samples, &r.Findings, f.kind
	if f.names != nil {
		result.Listed, result.LeftOut = &f.names.Listed, f.names.LeftOut()
	}
	if r.Mixing != nil {
		result.Mixing = newMixingJSON(r.Mixing)
	}
	return code, nil
}

func printFindings(w io.Writer, r *doctor.Report) error {
	for _, f := range r.Findings {
		fmt.Fprintf(w, "%s: %d. %s\n", f.Kind, f.Count, f.Advice)
		for _, e := range f.Examples {
			fmt.Fprintf(w, "    %s\n", shown(e))
		}
	}
	if m := r.Mixing; m != nil {
		world := m.Worlds[0]
		fmt.Fprintf(w,
			"mixing with --shuffle by place in storage, %s, batches of %d: variance inflation %.2f (1 is a uniform permutation); "+
				"on %d ranks %.2f within a rank, which sees %d or more of %d parts of the data set; %.2f%% of neighbours are from the same block\n",
			paramsText(m.Params), m.GlobalBatch, m.VIF, world.Size, world.VIF,
			world.LabelsLeast, m.Labels, 100*world.SameBlock)
	}
	verdict := "nothing found"
	if len(r.Findings) > 0 {
		verdict = plural(len(r.Findings), "kind") + " of trouble"
	}
	_, err := fmt.Fprintf(w, "looked at %s: %s\n", plural(r.Samples, "sample"), verdict)
	return err
}

func newMixingJSON(m *doctor.Mixing) *mixingJSON {
	world := m.Worlds[0]
	return &mixingJSON{m.GlobalBatch, m.Labels, world.LabelsLeast, world.LabelsMean, world.VIF, newOrderJSON(m.Params),
		world.SameBlock, m.Samples, m.VIF, m.Pooled, world.Size}
}
