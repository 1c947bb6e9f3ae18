package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/shardtool/shardtool/ingest"
)

var integerTypes = []string{"uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"}

// flagValues are the flags that take one of a few words, with the command before the name where a
// flag of that name takes others there. A test compares them with the values that the commands
// accept.
var flagValues = map[string][]string{
	"affinity":       {"epoch", "run"},
	"as":             ingest.Kinds(),
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
var fileFlags = []string{"against", "cache", "checkpoint", "checkpoint-in", "checkpoint-out", "file-root", "keys",
	"out", "temp-dir", "tokenizer", "weight", "without-keys"}

// complete registers the completions of all commands.
func complete(root *cobra.Command) {
	for _, cmd := range root.Commands() {
		cmd.Flags().VisitAll(func(f *pflag.Flag) { completeFlag(cmd, f.Name) })
		if strings.Contains(cmd.Use, "DATASET") && !strings.Contains(cmd.Use, "SRC") {
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
	}
	_ = cmd.RegisterFlagCompletionFunc(flag, values) // fails for a flag that has one
}

// completeDataset completes the first argument: folders.
func completeDataset(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveFilterDirs
}
