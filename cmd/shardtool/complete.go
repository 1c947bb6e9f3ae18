package main

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/names"
	"github.com/shardtool/shardtool/internal/plain"
	"github.com/shardtool/shardtool/reader"
)

// A completion takes at most completeWithin and lists at most mostCompletions.
const (
	completeWithin  = time.Second
	mostCompletions = 200
)

var integerTypes = []string{"uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"}

// flagValues are the flags that take one of a few words, with the command before the name where a
// flag of that name takes others there. A test compares them with the values that the commands
// accept.
var flagValues = map[string][]string{
	"affinity":       {"epoch", "run"},
	"as":             {"files", "parquet", "jsonl", "csv", "tsv", "tar", "tokens"},
	"export as":      {"tar", "dali", "wids", "energon", "hf", "megatron", "croissant"},
	"duplicate-keys": {"fail", "keep"},
	"format":         {"tar.zst", "tar"},
	"level":          {"fastest", "default", "better", "best"},
	"on-error":       {"fail", "skip"},
	"pack-remainder": {"keep", "pad", "drop"},
	"share-by":       {"key", "folder"},
	"tail":           {"short", "drop", "wrap", "pad"},
	"token-dtype":    integerTypes,
	"raw-dtype":      integerTypes,
}

// fileFlags take the path of a file or folder; other flags without values complete to nothing.
var fileFlags = []string{"against", "cache", "checkpoint", "checkpoint-in", "checkpoint-out", "file-root", "keys", "out", "temp-dir", "tokenizer", "weight", "without-keys"}

// completing reports whether the shell asks how a line may continue.
func completing(args []string) bool {
	return len(args) > 0 && (args[0] == cobra.ShellCompRequestCmd || args[0] == cobra.ShellCompNoDescRequestCmd)
}

// quietly silences warnings, and returns a stderr that discards everything.
func quietly() io.Writer {
	warnings = slog.New(slog.DiscardHandler)
	return io.Discard
}

// complete registers the completions of all commands.
func complete(root *cobra.Command) {
	for _, cmd := range root.Commands() {
		cmd.Flags().VisitAll(func(f *pflag.Flag) { completeFlag(cmd, f.Name) })
		if cmd.ValidArgsFunction == nil && strings.Contains(cmd.Use, "DATASET") && !strings.Contains(cmd.Use, "SRC") {
			cmd.ValidArgsFunction = completeDataset
		}
	}
}

// valuesOf returns the words that a flag of a command takes, or nil.
func valuesOf(cmd *cobra.Command, flag string) []string {
	if values := flagValues[cmd.Name()+" "+flag]; values != nil {
		return values
	}
	return flagValues[flag]
}

// completeFlag registers the completion of one flag's value.
func completeFlag(cmd *cobra.Command, flag string) {
	values := cobra.NoFileCompletions
	switch {
	case slices.Contains(fileFlags, flag):
		return
	case valuesOf(cmd, flag) != nil:
		values = cobra.FixedCompletions(valuesOf(cmd, flag), cobra.ShellCompDirectiveNoFileComp)
	case flag == "shard":
		values = withDataset(shardNames, 0)
	}
	_ = cmd.RegisterFlagCompletionFunc(flag, values) // fails for a flag that has one
}

// completeDataset completes the first argument: folders, and after an @ the generations of a data
// set.
func completeDataset(cmd *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
	addr, _, at := strings.Cut(word, "@")
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	if !at || strings.Contains(addr, "://") { // listing a bucket takes long
		return nil, cobra.ShellCompDirectiveFilterDirs
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completeWithin)
	defer cancel()
	store, _, err := dataset(ctx, addr)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var found []string
	for info, err := range store.List(ctx, "manifest-") {
		if err != nil || len(found) == mostCompletions {
			break
		}
		g := names.Generation(info.Name)
		if c := addr + "@" + g; g != "" && strings.HasPrefix(c, word) {
			found = append(found, c)
		}
	}
	return found, cobra.ShellCompDirectiveNoFileComp
}

// completeKey completes the second argument of get: keys up to the next slash, and after a key's
// dot its fields.
func completeKey(cmd *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
		return completeDataset(cmd, args, word)
	case 1:
		if hasField(word) {
			return withDataset(fieldsOf, 0)(cmd, args, word)
		}
		return withDataset(keysOf, cobra.ShellCompDirectiveNoSpace)(cmd, args, word)
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

// hasField reports whether a name is a key with a field.
func hasField(name string) bool {
	key, _ := format.SplitName([]byte(name))
	return len(key) < len(name)
}

// withDataset completes from the data set of the first argument. Names with control characters are
// left out.
func withDataset(list func(context.Context, *reader.Dataset, string) ([]string, error), directive cobra.ShellCompDirective) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
		directive := directive | cobra.ShellCompDirectiveNoFileComp
		if len(args) == 0 {
			return nil, directive
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completeWithin)
		defer cancel()
		ds, err := openDataset(ctx, args[0], reader.Options{})
		if err != nil {
			return nil, directive
		}
		defer ds.Close()
		found, _ := list(ctx, ds, word) // list what was found in time
		out := found[:0]
		for _, f := range found {
			if plain.Text(f) == f {
				out = append(out, f)
			}
		}
		return out, directive
	}
}

func shardNames(ctx context.Context, ds *reader.Dataset, word string) (found []string, err error) {
	for i := range ds.NumShards() {
		s, err := ds.Shard(ctx, i)
		if err != nil || len(found) == mostCompletions {
			return found, err
		}
		if strings.HasPrefix(s.Name, word) {
			found = append(found, s.Name)
		}
	}
	return found, nil
}

// keysOf lists keys that begin with word, each up to the first slash after it.
func keysOf(ctx context.Context, ds *reader.Dataset, word string) (found []string, err error) {
	seen := map[string]bool{}
	for i := range ds.NumShards() {
		s, err := ds.Shard(ctx, i)
		if err != nil {
			return found, err
		}
		if s.LastKey < word || s.FirstKey > word && !strings.HasPrefix(s.FirstKey, word) {
			continue
		}
		ix, err := ds.Index(ctx, i)
		if err != nil {
			return found, err
		}
		for _, key := range ix.Keys.All() {
			rest, ok := strings.CutPrefix(key, word)
			if !ok || key == "" { // a removed sample has no key
				continue
			}
			if slash := strings.IndexByte(rest, '/'); slash >= 0 {
				key = word + rest[:slash+1]
			}
			if !seen[key] {
				seen[key] = true
				if found = append(found, key); len(found) == mostCompletions {
					return found, nil
				}
			}
		}
	}
	return found, nil
}

// fieldsOf lists the fields of the sample whose key is in word.
func fieldsOf(ctx context.Context, ds *reader.Dataset, word string) (found []string, err error) {
	key, _ := format.SplitName([]byte(word))
	numbers, err := ds.Lookup(ctx, string(key))
	if err != nil {
		return nil, err
	}
	at, err := ds.Locate(ctx, numbers[0])
	if err != nil {
		return nil, err
	}
	ix, first, err := indexOf(ctx, ds, at.Shard)
	if err != nil {
		return nil, err
	}
	for _, f := range ix.Shape(int(numbers[0] - first)) {
		if c := format.JoinName(string(key), ix.Fields[f]); strings.HasPrefix(c, word) {
			found = append(found, c)
		}
	}
	return found, nil
}
