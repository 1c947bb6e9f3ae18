package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/writer"
)

func newMissing() *cobra.Command {
	var p partsCommand
	cmd := &cobra.Command{
		Use:   "missing DATASET",
		Short: "List the parts of a pack that are missing",
		Long: `Print the numbers of the parts that are missing or damaged, in the form 2,7 that array jobs take. If parts are missing,
it exits with 6; otherwise it prints nothing and exits with 0.

Parts that do not belong together are an error: parts of other sources, with other options or by another version.`,
		Example: "  shardtool missing out/ --parts 8\n  sbatch --array=$(shardtool missing out/ --parts 8) deploy/slurm/pack.sbatch 8 out/ photos/",
		Args:    usageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			store, err := p.store(cmd, args[0])
			if err != nil {
				return err
			}
			r, err := writer.Missing(cmd.Context(), store, p.name, p.parts)
			if errors.Is(err, writer.ErrMissing) {
				err = &exitError{exitNotFound, err}
			}
			if err != nil {
				return err
			}
			return p.printMissing(cmd, store, r)
		},
	}
	p.add(cmd)
	return cmd
}

// missingJSON is what missing prints.
type missingJSON struct {
	Dataset string `json:"dataset"`
	Name    string `json:"name"` // the beginning of the shards' names
	Parts   int    `json:"parts"`
	// Parts that are missing or incomplete.
	Missing []int `json:"missing"`
	// By part: why it is incomplete.
	Damaged map[string]string `json:"damaged"`
	// The generation that commit will publish, and whether it has.
	Generation uint64 `json:"generation"`
	Published  bool   `json:"published"`
	// Of the parts that exist.
	Samples uint64 `json:"samples"`
	Shards  uint64 `json:"shards"`
	Bytes   uint64 `json:"bytes"`
}

func (p *partsCommand) printMissing(cmd *cobra.Command, store objstore.Store, r *writer.PartsReport) error {
	damaged := map[string]string{}
	for part, why := range r.Damaged {
		damaged[strconv.Itoa(part)] = why
	}
	if err := present(cmd, p.json, byName{missingJSON{
		store.String(), r.Name, r.Parts, append([]int{}, r.Missing...), damaged, r.Generation, r.Published, r.Samples,
		r.Shards, r.Bytes,
	}}, func(w io.Writer) {
		if len(r.Missing) > 0 {
			// as `sbatch --array` takes them
			fmt.Fprintln(w, strings.ReplaceAll(strings.Trim(fmt.Sprint(r.Missing), "[]"), " ", ","))
		}
	}); err != nil {
		return err
	}
	stderr := cmd.ErrOrStderr()
	for _, part := range r.Missing {
		if why := r.Damaged[part]; why != "" {
			fmt.Fprintf(stderr, "part %d was packed, but is not whole any more: %s\n", part, why)
		}
	}
	switch {
	case r.Published:
		fmt.Fprintf(stderr, "generation %d of %s has been published of these %s\n", r.Generation, store,
			plural(r.Parts, "part"))
	case len(r.Missing) > 0:
		return &exitError{exitNotFound, fmt.Errorf("%s of %d missing", plural(len(r.Missing), "part"), r.Parts)}
	default:
		fmt.Fprintf(stderr, "nothing is missing: publish with `shardtool commit %s --parts %d`\n", store, r.Parts)
	}
	return nil
}
