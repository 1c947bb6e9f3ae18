package main

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/writer/source"
)

// stdinKinds are the values of --stdin-format.
var stdinKinds = map[string]*kind{"tar": &tarKind, "jsonl": &linesKind, "csv": &linesKind, "parquet": &parquetKind, "zip": &zipKind}

// stdinFlag is the format of standard input.
type stdinFlag struct {
	format string
	used   bool // whether it is a source
}

func (f *stdinFlag) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.format, "stdin-format", "tar", "standard input, the source '-': tar, jsonl, csv, parquet or zip")
}

// lookAtStdin finds the kind of standard input. all.close removes what it spooled.
func (all *found) lookAtStdin(cmd *cobra.Command, f *packFlags) (*recognised, error) {
	k, format := stdinKinds[f.stdin.format], f.stdin.format
	if f.as.lines {
		k, format = &textKind, "txt"
	}
	switch {
	case k == nil:
		return nil, usagef("--stdin-format %q: use tar, jsonl, csv, parquet or zip", f.stdin.format)
	case f.opt.Resume:
		return nil, usagef("--resume: what the killed pack read of standard input cannot be read again; save the stream to a file, or pack it anew and delete leftovers with `shardtool prune`")
	case f.parts.parts > 0:
		return nil, usagef("--parts: standard input cannot be divided between tasks; save the stream to files, or give each task data of its own with --append")
	}
	f.stdin.used = true
	ctx, name := cmd.Context(), "stdin."+format
	var in source.Input
	var err error
	if k == &parquetKind || k == &zipKind {
		f.known(cmd.ErrOrStderr(), "%s on standard input: copying it to a temporary file, because it is not read from front to back", f.stdin.format)
		var remove func()
		if in, remove, err = source.SpooledInput(ctx, cmd.InOrStdin(), name, f.opt.TempDir); err == nil {
			all.close = remove
		}
	} else if in, err = source.ReaderInput(ctx, cmd.InOrStdin(), name); err == nil {
		err = checkFormat(ctx, in, format)
	}
	if err != nil {
		return nil, err
	}
	return lookInArchives(ctx, f, stdinName, &recognised{kind: k, files: []source.Input{in}})
}

// checkFormat rejects a stream that begins as one of another format does. A shorter one is left to its
// reader.
func checkFormat(ctx context.Context, in source.Input, format string) error {
	obj, err := in.Store.Open(ctx, in.Name)
	if err != nil {
		return err
	}
	defer obj.Close()
	var head [4]byte
	if obj.ReadAt(ctx, head[:], 0) != nil {
		return ctx.Err()
	}
	for magic, is := range map[string]string{"PK\x03\x04": "zip", "PK\x05\x06": "zip", "PAR1": "parquet"} {
		if string(head[:]) == magic {
			return usagef("standard input is %s and not %s: name it by --stdin-format %s", is, format, is)
		}
	}
	return nil
}

// checkStdin rejects the second use of standard input, and its format where it is not a source.
func checkStdin(cmd *cobra.Command, srcs []string) error {
	first := slices.Index(srcs, stdinName)
	switch {
	case first < 0 && cmd.Flags().Changed("stdin-format"):
		return usagef("--stdin-format is for standard input, and no source is '-'; the sources are: %s", strings.Join(srcs, ", "))
	case first >= 0 && slices.Contains(srcs[first+1:], stdinName):
		return usagef("'-' is given twice, and standard input can be read once")
	}
	return nil
}

// packError is packError with advice for a pack that has nothing to continue.
func (f *packFlags) packError(ctx context.Context, store objstore.Store, err error) error {
	switch {
	case stopped(ctx) && f.stdin.used:
		return stoppedError(ctx, err, "nothing was published; pack the stream again from its beginning")
	case stopped(ctx) && !hasShards(ctx, store):
		return stoppedError(ctx, err, "nothing was published, and no shard was complete: there is nothing to continue")
	}
	return packError(ctx, err, resumed)
}

// hasShards reports whether a store has a shard, from which a pack that was stopped can continue.
// It says yes where the store does not answer in time.
func hasShards(ctx context.Context, store objstore.Store) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin/3)
	defer cancel()
	for info, err := range store.List(ctx, "") {
		if err != nil || strings.HasSuffix(info.Name, format.ZstdSuffix) {
			return true
		}
	}
	return false
}
