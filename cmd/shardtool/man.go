package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// newMan is the command that writes the man pages of a tree of commands: `make man` runs it,
// packages install them.
func newMan(newRoot func() *cobra.Command) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:     "man --dir DIR",
		Short:   "Write a man page of each command",
		Long:    `Write a man page of each command into a folder, which is created if missing. man -l FILE shows one.`,
		Example: "  shardtool man --dir man1/ && man -l man1/shardtool-pack.1",
		Args:    usageArgs(cobra.NoArgs),
		Hidden:  true,
		RunE: func(_ *cobra.Command, _ []string) error {
			if dir == "" {
				return usagef("give --dir DIR: the folder to write to")
			}
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return err
			}
			return writeMan(newRoot(), dir)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "the folder to write to")
	return cmd
}

// writeMan edits the texts of a tree of commands of its own, and writes the pages.
func writeMan(root *cobra.Command, dir string) error {
	root.DisableAutoGenTag = true // the same program gives the same pages
	exitCodes := "\n\nExit codes:"
	for code, meaning := range exitMeanings {
		exitCodes += fmt.Sprintf("\n  %d  %s", code, meaning)
	}
	var edit func(cmd *cobra.Command)
	edit = func(cmd *cobra.Command) {
		cmd.Long = manText(cmd.Long + exitCodes)
		if f := cmd.Flags().Lookup(helpAllFlag); f != nil {
			f.Hidden = true // a page has all flags
		}
		for _, sub := range cmd.Commands() {
			edit(sub)
		}
	}
	edit(root)
	return doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "shardtool " + version, Manual: "shardtool"},
		dir)
}

// manText converts help, which is laid out for a terminal, to Markdown: a run of indented lines
// becomes a block that stays unchanged, and characters that Markdown treats as markup are escaped.
func manText(help string) string {
	var out strings.Builder
	block := false
	for line := range strings.Lines(help) {
		indented := strings.HasPrefix(line, "  ")
		if indented != block {
			out.WriteByte('\n')
		}
		if block = indented; block {
			out.WriteString("    " + line)
		} else {
			out.WriteString(manMarkup.Replace(line))
		}
	}
	return out.String()
}

var manMarkup = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `_`, `\_`, `<`, `\<`, `[`, `\[`)
