package main

import (
	"errors"
	"os"
	"slices"

	"github.com/spf13/cobra"

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
	fl.StringArrayVar(&f.where, "where", nil,
		"take the samples for which this `EXPR` over attributes holds, as 'score >= 3 and lang in (de, fr)'")
	fl.StringVar(&f.keys, "keys", "", "take the samples whose keys are in this `FILE`, one in each line")
	titled(cmd, "Samples")
}

func (f *viewFlags) given() bool { return len(f.where) > 0 || f.keys != "" }

// explainView gives an error of package curate its exit code. spell names its option as the caller
// knows it: optionError, or argumentError.
func explainView(err error, spell func(error) error) error {
	switch {
	case errors.Is(err, curate.ErrSpec):
		return usage(spell(err))
	case errors.Is(err, curate.ErrMissing), errors.Is(err, os.ErrNotExist):
		return &exitError{exitNotFound, err}
	}
	return err
}

// ofSource is explainView for a data set that is read alone. In a mix the error has its place in
// the mix file, and no option of its own.
func ofSource(spec *reader.Spec, err error, spell func(error) error) error {
	switch {
	case spec.Sources[0].Name == "":
		return explainView(err, spell)
	case errors.Is(err, curate.ErrSpec):
		return usage(err)
	case errors.Is(err, curate.ErrMissing):
		return &exitError{exitNotFound, err}
	}
	return err
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
