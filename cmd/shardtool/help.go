package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const (
	groupAnnotation = "shardtool_group"
	otherFlags      = "Options"  // title of the flags without another
	helpAllFlag     = "help-all" // of commands with more than mostFlags
	mostFlags       = 20
)

// rareFlags are left out of the help of a command with more than mostFlags; --help-all has them.
var rareFlags = []string{
	"layout", "sample-rule", "key-prefix", "classes-from", "tokens-field", "delimiter", "header", "no-header", "columns-are", "quote",
	"allow-nan", "widen", "nulls", "rename", "file-root", "stdin-format", "share-salt", "share-by", "temp-dir",
	"raw-dtype", "token-dtype", "pack-remainder", "pad-id",
	"lanes", "run-blocks", "delay", "head", "affinity", "whole-shards", "unit-window", "plans", "long", "autotune",
	"requests", "depth",
	"stats-every", "change-mix", "skip-steps", "square-cost", "tokens-per-second", "tokens-per-sample",
}

// titled puts the flags that a command has so far, and that have no title yet, below a title of its
// help. Functions that add flags to several commands end with it.
func titled(cmd *cobra.Command, title string) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Annotations[groupAnnotation] == nil {
			_ = cmd.Flags().SetAnnotation(f.Name, groupAnnotation, []string{title}) // fails for an unknown flag
		}
	})
}

// addHelpAll adds --help-all to a command with many flags. It is --help, and printUsage looks at
// it.
func addHelpAll(cmd *cobra.Command) {
	shown, rare := 1, 0 // --help is added later
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		switch {
		case f.Hidden:
		case slices.Contains(rareFlags, f.Name):
			rare++
		default:
			shown++
		}
	})
	if shown+rare > mostFlags {
		cmd.Flags().BoolFunc(helpAllFlag, "help with "+plural(rare, "more flag"),
			func(on string) error { return cmd.Flags().Set("help", on) })
	}
}

// printUsage prints what follows the description of a command in its help.
func printUsage(cmd *cobra.Command) error {
	w := cmd.OutOrStdout()
	fmt.Fprintf(w, "Usage:\n  %s\n", cmd.UseLine())
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(w, "  %s COMMAND\n", cmd.CommandPath())
	}
	fmt.Fprintf(w, "\nExamples:\n%s\n\nExit codes: %s\n", cmd.Example, exitCodesLine())
	for _, g := range append(cmd.Groups(), &cobra.Group{Title: "Other commands"}) {
		printCommands(w, cmd, g)
	}
	printFlags(w, cmd)
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(w, "\n`%s COMMAND --help` describes a command.\n", cmd.CommandPath())
	}
	return nil
}

// printCommands prints the commands of a group, if there are any.
func printCommands(w io.Writer, cmd *cobra.Command, g *cobra.Group) {
	title := "\n" + g.Title + ":\n"
	for _, sub := range cmd.Commands() {
		if sub.GroupID == g.ID && (sub.IsAvailableCommand() || sub.Name() == "help") {
			fmt.Fprintf(w, "%s  %-*s %s\n", title, sub.NamePadding(), sub.Name(), sub.Short)
			title = ""
		}
	}
}

// inHelp reports whether a flag is in the help of its command: it is not hidden, and it is a common
// one, or the command has few, or the user gave --help-all.
func inHelp(cmd *cobra.Command, f *pflag.Flag) bool {
	helpAll := cmd.Flags().Lookup(helpAllFlag)
	return !f.Hidden && (helpAll == nil || helpAll.Changed || !slices.Contains(rareFlags, f.Name))
}

// printFlags prints the flags that are not hidden by their titles, in the order of registration;
// those without a title come last, sorted. They are the common ones, or all if the command has few
// or the user gave --help-all.
func printFlags(w io.Writer, cmd *cobra.Command) {
	all := cmd.Flags()
	all.SortFlags = false
	defer func() { all.SortFlags = true }()
	var titles []string
	groups := map[string]*pflag.FlagSet{otherFlags: pflag.NewFlagSet("", pflag.ContinueOnError)}
	all.VisitAll(func(f *pflag.Flag) {
		title := otherFlags
		if given := f.Annotations[groupAnnotation]; given != nil {
			title = given[0]
		}
		if groups[title] == nil {
			titles = append(titles, title)
			groups[title] = pflag.NewFlagSet("", pflag.ContinueOnError)
			groups[title].SortFlags = false
		}
		if inHelp(cmd, f) {
			groups[title].AddFlag(f)
		}
	})
	for _, title := range append(titles, otherFlags) {
		if groups[title].HasFlags() {
			fmt.Fprintf(w, "\n%s:\n%s", title, groups[title].FlagUsages())
		}
	}
}

// exitCodesLine is the exit codes on one line.
func exitCodesLine() string {
	codes := make([]string, len(exitMeanings))
	for code, meaning := range exitMeanings {
		codes[code] = strconv.Itoa(code) + " " + meaning
	}
	return strings.Join(codes, "; ")
}
