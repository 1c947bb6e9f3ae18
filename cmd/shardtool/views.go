package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/internal/names"
	"github.com/shardtool/shardtool/internal/viewfile"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reshard/curate"
)

// viewFlags choose samples without a stored view.
type viewFlags struct {
	where []string
	keys  string // file
}

func (f *viewFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringArrayVar(&f.where, "where", nil, "take the samples for which this `EXPR` over attributes holds, as 'score >= 3 and lang in (de, fr)'")
	fl.StringVar(&f.keys, "keys", "", "take the samples whose keys are in this `FILE`, one in each line")
	titled(cmd, "Samples")
}

func (f *viewFlags) given() bool { return len(f.where) > 0 || f.keys != "" }

// use makes the view that the flags ask for, if they do, and has the data set use it. explain
// explains errors of package curate.
func (f *viewFlags) use(ctx context.Context, ds *reader.Dataset, explain func(error) error) error {
	if !f.given() {
		return nil
	}
	spec := curate.Spec{Where: f.where}
	if f.keys != "" {
		spec.Keys = curate.KeyFile(f.keys)
	}
	v, _, err := curate.Make(ctx, ds, spec)
	if err != nil {
		return explain(err)
	}
	return ds.UseView(v)
}

// flags are the command line that gives these flags.
func (f *viewFlags) flags() (line []string) {
	for _, text := range f.where {
		line = append(line, "--where="+text)
	}
	if f.keys != "" {
		line = append(line, "--keys="+f.keys)
	}
	return line
}

// explainView gives an error of package curate its exit code, and names flags.
func explainView(err error) error {
	switch {
	case errors.Is(err, curate.ErrSpec):
		text := err.Error()
		for _, flag := range []string{"where ", "weight: ", "balance: "} {
			if strings.HasPrefix(text, flag) {
				text = "--" + text
			}
		}
		return usagef("%s", text)
	case errors.Is(err, curate.ErrMissing) && strings.Contains(err.Error(), "have no weight"):
		return &exitError{exitNotFound, fmt.Errorf("%w (--default)", err)}
	case errors.Is(err, curate.ErrMissing):
		return &exitError{exitNotFound, fmt.Errorf("%w; accept that with --allow-missing", err)}
	case errors.Is(err, os.ErrNotExist):
		return &exitError{exitNotFound, err}
	}
	return err
}

// cutView splits DATASET#VIEW. The name of a folder may contain a #.
func cutView(arg string) (addr, view string) {
	i := strings.LastIndexByte(arg, '#')
	if i < 0 {
		return arg, ""
	}
	if !strings.Contains(arg, "://") {
		if _, err := os.Stat(arg); err == nil {
			return arg, ""
		}
	}
	if name := arg[i+1:]; names.IsViewID(name) || viewfile.CheckLabel(name) == nil {
		return arg[:i], name
	}
	return arg, ""
}

// noView refuses a view where a command reads whole data sets.
func noView(arg string) error {
	if addr, view := cutView(arg); view != "" {
		return usagef("%s names the view %s: here, give the whole data set, %s", arg, view, addr)
	}
	return nil
}

// bareKeys is the value of --keys without a file, which prints keys in the command order.
const bareKeys = "true"

// orderKeys reports whether order prints keys, and leaves the data set alone in args: a file after
// --keys is among them, because that flag may stand alone.
func (f *viewFlags) orderKeys(args *[]string) (bool, error) {
	printed := f.keys != ""
	if f.keys == bareKeys {
		f.keys = ""
		if len(*args) == 2 {
			for i, arg := range slices.Backward(*args) {
				if info, err := os.Stat(arg); err == nil && info.Mode().IsRegular() {
					f.keys, *args = arg, []string{(*args)[1-i]}
					break
				}
			}
		}
	}
	if len(*args) != 1 {
		return false, usagef("accepts 1 arg(s), received %d", len(*args))
	}
	return printed, nil
}
