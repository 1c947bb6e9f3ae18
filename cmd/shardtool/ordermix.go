package main

import (
	"cmp"
	"errors"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/open"
	"github.com/shardtool/shardtool/reader"
)

// mixFlags are the flags that only a mix has.
type mixFlags struct {
	skip    string // steps to leave out, A-B
	change  bool
	asSaved bool // the mix file is used to find the data sets alone
}

func (flags *mixFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&flags.skip, "skip-steps", "", "for a mix: leave out the steps `A-B`, both included")
	cmd.Flags().BoolVar(&flags.change, "change-mix", false,
		"for a mix: continue the checkpoint with other sources or weights")
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
		return c, usagef("--skip-steps %q: give the first and the last step to leave out, such as 40000-40100",
			flags.skip)
	}
	c.Skip = &[2]uint64{first, last}
	return c, nil
}

// spec reads what an argument stands for.
func spec(arg string, o open.Options) (*reader.Spec, error) {
	s, err := open.Spec(arg, o)
	if _, wrong := errors.AsType[*reader.SpecError](err); wrong {
		err = usage(err)
	}
	return s, err
}
