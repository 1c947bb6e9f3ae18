package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/fieldname"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/open"
	"github.com/shardtool/shardtool/reader"
)

func newGet() *cobra.Command {
	var number int64
	var layers fieldFlags
	cmd := &cobra.Command{
		Use:   "get DATASET KEY[.FIELD]",
		Short: "Write one sample, or one field of it, to stdout",
		Long: `Write one sample as a tar, or the bytes of one field, or the files of a list as a tar, to stdout. With --number the sample is chosen by its place in
storage order, and the argument after DATASET is only a field.`,
		Example: "  shardtool get out/ dog/7.jpg > 7.jpg\n  shardtool get out/ dog/7 | tar -t\n  shardtool get out/ --number 41 .json",
		Args:    usageArgs(cobra.RangeArgs(1, 2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			byNumber := cmd.Flags().Changed("number")
			if !byNumber && len(args) < 2 {
				return usagef("get needs a KEY, KEY.FIELD or --number N; see `%s --help`", cmd.CommandPath())
			}
			if byNumber && number < 0 {
				return usagef("--number %d: samples are numbered from 0", number)
			}
			if len(args) < 2 || !byNumber && !hasField(args[1]) {
				if err := refuseTar(cmd,
					"add `| tar -t` to list the fields or `> FILE` to keep them, or name one field"); err != nil {
					return err
				}
			}
			return runGet(cmd, args, &layers, byNumber, uint64(number))
		},
	}
	cmd.Flags().Int64Var(&number, "number", 0, "number of the sample in storage order, from 0")
	layers.add(cmd)
	return cmd
}

func runGet(cmd *cobra.Command, args []string, layers *fieldFlags, byNumber bool, number uint64) error {
	ctx := cmd.Context()
	if err := open.Whole(args[0]); err != nil {
		return err
	}
	ds, err := layers.open(ctx, args[0])
	if err != nil && len(args) > 1 && errors.Is(err, fs.ErrNotExist) {
		if is, _ := isOneDataset(ctx, args[1:]); is {
			return usagef("the data set comes first: `shardtool get %s %s`", args[1], args[0])
		}
	}
	if err != nil {
		return err
	}
	defer ds.Close()
	field, wantField := "", false
	if byNumber {
		if len(args) > 1 {
			field, wantField = strings.TrimPrefix(args[1], "."), true
		}
	} else {
		key, f := format.SplitName([]byte(args[1]))
		field, wantField = string(f), hasField(args[1])
		numbers, err := ds.Lookup(ctx, string(key))
		if n, bad := strconv.ParseUint(args[1], 10, 64); bad == nil && errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%w; for the number of a sample write --number %d", err, n)
		}
		if err != nil {
			return err
		}
		if len(numbers) > 1 {
			fmt.Fprintf(cmd.ErrOrStderr(),
				"shardtool: %d samples have the key %q: %v; this is the first, --number picks another\n", len(numbers),
				key, numbers)
		}
		number = numbers[0]
	}
	if number >= ds.NumSamples() {
		return &exitError{exitNotFound, fmt.Errorf("no sample number %d: %v has %s, numbered from 0", number,
			ds.Store(), plural(ds.NumSamples(), "sample"))}
	}
	w := bufio.NewWriterSize(cmd.OutOrStdout(), 64<<10)
	switch {
	case wantField && slices.Contains(ds.Lists(), field):
		err = getFields(ctx, ds, number, w, func(name string) bool {
			_, is := fieldname.Element(name, field)
			return is
		})
	case wantField:
		err = ds.Field(ctx, number, field, w)
	case layers.given():
		err = getFields(ctx, ds, number, w, func(string) bool { return true })
	default:
		err = ds.WriteTar(ctx, number, w)
	}
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) && !byNumber {
			err = fmt.Errorf("%s: %w", args[1], err)
		}
		return err
	}
	return w.Flush()
}

// getFields writes a sample with the fields that take chooses, of the data set and its layers.
func getFields(ctx context.Context, ds *reader.Dataset, number uint64, w *bufio.Writer,
	take func(name string) bool) error {
	s, err := ds.Get(ctx, number)
	if err != nil {
		return err
	}
	s.Fields = slices.DeleteFunc(s.Fields, func(f format.FieldView) bool { return !take(string(f.Name)) })
	if err := (&batchWriter{w: w}).members(s); err != nil {
		return err
	}
	_, err = w.Write(metadata.EndOfArchive(true))
	return err
}

// hasField reports whether a name is a key with a field.
func hasField(name string) bool {
	key, _ := format.SplitName([]byte(name))
	return len(key) < len(name)
}
