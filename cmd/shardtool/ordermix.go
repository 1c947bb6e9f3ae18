package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/format"

	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/mixfile"
)

// isMix reports whether an argument names a mix file.
func isMix(arg string) bool {
	return slices.Contains([]string{".yaml", ".yml", ".json"}, path.Ext(arg)) && path.Base(arg) != format.ManifestName
}

// mixFlags are the flags that only a mix has.
type mixFlags struct {
	skip    string // steps to leave out, A-B
	change  bool
	asSaved bool // the mix file is used to find the data sets alone
}

func (flags *mixFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&flags.skip, "skip-steps", "", "for a mix: leave out the steps `A-B`, both included")
	cmd.Flags().BoolVar(&flags.change, "change-mix", false, "for a mix: continue the checkpoint with other sources or weights")
	titled(cmd, "Mixes")
}

// refuse refuses the flags for one data set.
func (flags *mixFlags) refuse(changed func(flag string) bool) error {
	switch {
	case changed("skip-steps"):
		return usagef("--skip-steps is for mixes: the checkpoint of one data set cannot remember the steps left out")
	case changed("change-mix"):
		return usagef("--change-mix is for mixes")
	case changed("steps"):
		return usagef("--steps is for mixes")
	}
	return nil
}

// asked returns the change of the mix that the flags ask for.
func (flags *mixFlags) asked() (reader.Change, error) {
	c := reader.Change{Mix: flags.change, AsSaved: flags.asSaved}
	if flags.skip == "" {
		return c, nil
	}
	a, b, _ := strings.Cut(flags.skip, "-")
	first, err := strconv.ParseUint(a, 10, 64)
	last, err2 := strconv.ParseUint(b, 10, 64)
	if err := cmp.Or(err, err2); err != nil {
		return c, usagef("--skip-steps %q: give the first and the last step to leave out, such as 40000-40100", flags.skip)
	}
	c.Skip = &[2]uint64{first, last}
	return c, nil
}

func readMix(name string) (*reader.Spec, error) {
	text, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &exitError{exitNotFound, fmt.Errorf("no mix file %s: check the path; docs/mixing.md describes mixes", name)}
	}
	if err != nil {
		return nil, err
	}
	spec, err := mixfile.Parse(name, text)
	if err != nil {
		return nil, usage(err)
	}
	return spec, nil
}
