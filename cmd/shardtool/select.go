package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/curate/viewfile"
	"github.com/shardtool/shardtool/internal/curate/viewstore"
	"github.com/shardtool/shardtool/internal/format/names"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/open"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reshard/curate"
	"github.com/shardtool/shardtool/writer"
)

type selectFlags struct {
	view         viewFlags
	layers       fieldFlags
	without      string
	weight       string
	balance      string
	temperature  string
	draws        uint64
	fallback     float64
	name         string
	carry        bool
	allowMissing bool
	overwrite    bool
	json         bool
}

func newSelect() *cobra.Command {
	var f selectFlags
	cmd := &cobra.Command{
		Use:   "select DATASET",
		Short: "Make a view: which samples are read, and how often",
		Long: `Make a view of a data set: some of its samples, or draws by weight. Nothing is packed again. The view is a small object
beside the data set; read it as DATASET#NAME. Without --name it has only an ID, DATASET#ID, and is kept until a prune.
DATASET#OTHER chooses among the samples of another view.

EXPR compares attributes: = != < <= > >=, in (a, b), between a and b, is null; and, or, not and parentheses join
comparisons. Key lists are text, one key in each line, of any length. --weight takes an attribute, or a Parquet, CSV or
JSON Lines file with the columns key and value. --balance makes the values of an attribute equally frequent, or less
uneven by --temperature: 1/2 draws a value in proportion to the root of its number of samples, 1/1 changes nothing.

A view belongs to the content of the data set. After samples were added, --carry makes the view again, by key.`,
		Example: `  shardtool select out/ --where 'score >= 0.5 and lang in (de, fr)' --name clean
  shardtool cat out/#clean --shuffle | tar -t
  shardtool select out/ --balance label --temperature 1/2 --name even
  shardtool select out/ --without-keys duplicates.txt --weight scores.parquet --draws 1000000 --name v2
  shardtool select out/ --carry --name clean`,
		Args: usageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error { return runSelect(cmd, args[0], &f) },
	}
	f.view.add(cmd)
	f.layers.addLayers(cmd)
	fl := cmd.Flags()
	fl.StringVar(&f.without, "without-keys", "", "leave out the samples whose keys are in this `FILE`")
	fl.StringVar(&f.weight, "weight", "",
		"draw in proportion to this attribute, or to the values in a file: `COLUMN|FILE`")
	fl.StringVar(&f.balance, "balance", "", "draw so that the values of this `ATTR` are equally frequent")
	fl.StringVar(&f.temperature, "temperature", "", "with --balance: `p/q` from 0 (equally frequent) to 1 (as stored)")
	fl.Uint64Var(&f.draws, "draws", 0,
		"samples of an epoch of a view with weights (0: the number of samples with a weight above 0)")
	fl.Float64Var(&f.fallback, "default", 0, "with --weight: the weight of samples that have none")
	fl.StringVar(&f.name, "name", "", "name of the view")
	fl.BoolVar(&f.carry, "carry", false, "make the view of this name again, for the current content, by key")
	fl.BoolVar(&f.allowMissing, "allow-missing", false, "accept keys that the data set does not have")
	fl.BoolVar(&f.overwrite, "overwrite", false, "give the name to the new view where another one has it")
	fl.BoolVar(&f.json, "json", false, "print the result as JSON")
	return cmd
}

func runSelect(cmd *cobra.Command, arg string, f *selectFlags) error {
	ctx := cmd.Context()
	if f.name != "" {
		if err := viewfile.CheckLabel(f.name); err != nil {
			return usagef("--name: %w", err)
		}
	}
	ds, err := f.layers.open(ctx, arg)
	if err != nil {
		return err
	}
	defer ds.Close()
	spec, err := f.spec(cmd, ds)
	if err != nil {
		return err
	}
	made := spec.Made()
	var v *viewfile.View
	var r *curate.Report
	if f.carry {
		v, r, made, err = f.carryOver(ctx, cmd, arg, ds, &spec)
	} else {
		if id := ds.Selection().ID(); id != "" {
			made["view"] = id
		}
		v, r, err = curate.Make(ctx, ds, spec)
	}
	if err != nil {
		return explainView(err, optionError)
	}
	err = writer.PutView(ctx, ds.Store(), v, writer.ViewName{
		Name: f.name, Replace: f.carry || f.overwrite, Tables: ds.Info().Tables, Made: made, Samples: r.Samples,
	})
	if errors.Is(err, objstore.ErrExists) {
		return fmt.Errorf("%w (--overwrite)", err)
	}
	if err != nil {
		return err
	}
	return f.print(cmd, arg, ds, v, r)
}

// spec turns the flags into a curate.Spec.
func (f *selectFlags) spec(cmd *cobra.Command, ds *reader.Dataset) (s curate.Spec, err error) {
	s = curate.Spec{Where: f.view.where, Balance: f.balance, Draws: f.draws, AllowMissing: f.allowMissing}
	if f.view.keys != "" {
		s.Keys = curate.KeyFile(f.view.keys)
	}
	if f.without != "" {
		s.WithoutKeys = curate.KeyFile(f.without)
	}
	if cmd.Flags().Changed("default") {
		s.Default = &f.fallback
	}
	if cmd.Flags().Changed("draws") && f.draws == 0 {
		return s, usagef("--draws 0: give how many samples an epoch has")
	}
	if _, attribute := ds.HasAttribute(f.weight); attribute || !curate.IsScores(f.weight) {
		s.Weight = f.weight
	} else {
		s.Scores = &curate.Scores{Name: f.weight}
	}
	if f.temperature != "" {
		if s.Temperature, err = parseTemperature(f.temperature); err != nil {
			return s, err
		}
	}
	given := len(s.Where) > 0 || s.Keys != nil || s.WithoutKeys != nil || s.Weighted()
	switch {
	case f.carry && (given || f.name == "" || ds.Selection().View() != nil):
		return s, usagef("--carry goes with --name, which is the view to make again, and with none of --where, --keys, --without-keys, --weight and --balance")
	case !f.carry && !given && ds.Selection().View() == nil:
		return s, usagef("choose samples by --where, --keys or --without-keys, or weigh them by --weight or --balance")
	}
	return s, nil
}

// parseTemperature reads p/q, or a decimal such as 0.5.
func parseTemperature(text string) (t [2]int, err error) {
	p, q, fraction := strings.Cut(text, "/")
	x, err := strconv.Atoi(p)
	y := 1
	if fraction && err == nil {
		y, err = strconv.Atoi(q)
	}
	if err != nil || x < 0 || x > y || y < 1 || y > 16 {
		return t, usagef("--temperature %q: give p/q with 0 <= p <= q <= 16, such as 1/2", text)
	}
	return [2]int{x, y}, nil
}

// carryOver makes a view of an earlier generation anew.
func (f *selectFlags) carryOver(ctx context.Context, cmd *cobra.Command, arg string, ds *reader.Dataset,
	spec *curate.Spec) (*viewfile.View, *curate.Report, map[string]string, error) {
	label, err := viewstore.Label(ctx, ds.Store(), f.name)
	if err != nil {
		return nil, nil, nil, err
	}
	old, err := reader.Open(ctx, ds.Store(), reader.Options{Generation: names.Generation(label.Tables), View: f.name})
	if err != nil {
		return nil, nil, nil, fmt.Errorf("the view %s was made on the generation of %s, which is needed for its keys: %w: make the view again as it was made (%s)", f.name, label.Tables, err, madeText(label.Made))
	}
	defer old.Close()
	if old.Digest() == ds.Digest() {
		fmt.Fprintf(cmd.ErrOrStderr(), "the view %s is of the current content of %s already\n", f.name, arg)
	}
	v, r, err := curate.Carry(ctx, old, ds, *spec)
	made := map[string]string{}
	maps.Copy(made, label.Made)
	made["carried_from"] = label.Tables
	return v, r, made, err
}

// madeText shows how a view was made.
func madeText(made map[string]string) string {
	var all []string
	for _, k := range slices.Sorted(maps.Keys(made)) {
		all = append(all, k+": "+made[k])
	}
	return strings.Join(all, ", ")
}

// selectJSON is what select --json prints.
type selectJSON struct {
	Dataset      string         `json:"dataset"`
	Name         string         `json:"name,omitempty"`
	View         string         `json:"view"`
	ID           string         `json:"id"`
	Kind         string         `json:"kind"`
	Of           uint64         `json:"of"` // samples of the data set
	Chosen       uint64         `json:"chosen"`
	Samples      uint64         `json:"samples"` // of an epoch
	Digest       string         `json:"digest"`
	Missing      curate.Missing `json:"missing_keys"`            // that the data set does not have
	WithoutValue uint64         `json:"without_value,omitempty"` // samples without the attribute to balance
	Raised       uint64         `json:"raised,omitempty"`        // weights raised to 2^-32 of the largest
}

func (f *selectFlags) print(cmd *cobra.Command, arg string, ds *reader.Dataset, v *viewfile.View,
	r *curate.Report) error {
	return present(cmd, f.json, selectJSON{
		Dataset: ds.Store().String(), Name: f.name, View: names.View(v.ID()), ID: v.ID(), Kind: v.Kind(), Of: v.Samples,
		Chosen:  r.Chosen,
		Samples: r.Samples, Digest: format.DigestString(v.Digest), Missing: r.MissingKeys, WithoutValue: r.WithoutValue,
		Raised: r.Raised,
	}, func(w io.Writer) { f.summary(w, cmd.ErrOrStderr(), arg, v, r) })
}

// summary prints what was made, and to stderr what is missing in it.
func (f *selectFlags) summary(w, stderr io.Writer, arg string, v *viewfile.View, r *curate.Report) {
	if n := r.MissingKeys.Count; n > 0 {
		fmt.Fprintf(stderr, "%s not in the data set:%s\n", plural(n, "key"), &r.MissingKeys)
	}
	if r.WithoutValue > 0 {
		fmt.Fprintf(stderr, "%s without %s left out\n", plural(r.WithoutValue, "sample"), f.balance)
	}
	if r.Raised > 0 {
		fmt.Fprintf(stderr, "%s below 2^-32 of the largest raised to that\n", plural(r.Raised, "weight"))
	}
	text := fmt.Sprintf("%s of %s", countText(r.Chosen), plural(v.Samples, "sample"))
	if !v.Subset() {
		text += fmt.Sprintf(", %s in an epoch", plural(r.Samples, "draw"))
	}
	addr, _ := open.CutView(arg)
	fmt.Fprintf(w, "%s#%s: %s (%s)\n", addr, cmp.Or(f.name, v.ID()), text, names.View(v.ID()))
}
