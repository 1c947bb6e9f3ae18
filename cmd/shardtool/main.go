// Command shardtool packs files into compressed shards, and inspects, verifies and reads them.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// run is the whole program, for main and for tests.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, stop := withSignals(context.Background())
	defer stop()
	root := newRoot()
	if len(args) > 0 && (args[0] == cobra.ShellCompRequestCmd || args[0] == cobra.ShellCompNoDescRequestCmd) {
		complete(root) // cobra keeps what is registered, and with it the commands, for good
	}
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(forPeople(stdout))
	root.SetErr(newScreen(stderr))
	err := root.ExecuteContext(ctx)
	if err != nil && stopped(ctx) {
		err = stoppedError(ctx, err, "")
	}
	return report(stderr, err)
}

// commandGroups are the titles under which the help of the program lists its commands.
var commandGroups = []struct {
	title    string
	commands []func() *cobra.Command
}{
	{"Make data sets", []func() *cobra.Command{newPack, newIndex, newLayer, newDoctor, newMissing, newCommit}},
	{"Look at data sets", []func() *cobra.Command{newInspect, newLs, newHead, newGet, newView}},
	{"Train", []func() *cobra.Command{newCat, newOrder, newExplain, newSimulate, newBench, newStage}},
	{"Curate", []func() *cobra.Command{newSelect, newRemove, newPurge}},
	{"Keep", []func() *cobra.Command{newVerify, newPrune, newExport, newUnpack}},
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "shardtool",
		Short: "Pack training data into compressed shards, and inspect, verify and read them",
		Long: `shardtool packs files into zstd-compressed tar shards with an index, and reads them back.

DATASET is the place of the shards and their manifest: a folder, s3://bucket/prefix, gs://bucket/prefix,
az://account/container/prefix, https://host/prefix or hf://datasets/ORG/NAME, on the Hugging Face Hub;
DATASET@0123456789abcdef picks a generation, DATASET#NAME a view.
Sizes are written 64MiB or 1GB, durations 30s.`,
		Example:       "  shardtool pack photos/ out/ --name train\n  shardtool inspect out/\n  shardtool verify out/ --deep",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          knownCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		Version:       version,
	}
	root.Flags().Bool("version", false, "print the version") // no -v, which other programs have for verbose
	root.SetVersionTemplate(versionText() + "\n")
	root.SetFlagErrorFunc(flagError)
	for i, g := range commandGroups {
		id := strconv.Itoa(i)
		root.AddGroup(&cobra.Group{ID: id, Title: g.title})
		for _, newCommand := range g.commands {
			cmd := newCommand()
			cmd.GroupID = id
			addHelpAll(cmd)
			root.AddCommand(cmd)
		}
	}
	root.AddCommand(newVersion(), newServe(), newReceive(), newMan(newRoot))
	root.SetUsageFunc(printUsage)
	finishDefaults(root)
	return root
}

// finishDefaults makes the commands that cobra adds behave like the others.
func finishDefaults(root *cobra.Command) {
	root.SuggestionsMinimumDistance = 2
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "help":
			cmd.Example = "  shardtool help pack"
			cmd.Run, cmd.RunE = nil, func(_ *cobra.Command, args []string) error {
				about, rest, err := root.Find(args)
				if err != nil || len(rest) > 0 {
					return usagef("no command %q; see `shardtool --help`", strings.Join(args, " "))
				}
				about.InitDefaultHelpFlag()
				return about.Help()
			}
		case "completion":
			cmd.Example = "  source <(shardtool completion bash)"
			cmd.RunE = func(cmd *cobra.Command, args []string) error {
				if len(args) > 0 {
					return usagef("no completion for %q: use bash, zsh, fish or powershell", args[0])
				}
				return cmd.Help()
			}
			cmd.Args = cobra.ArbitraryArgs
			for _, shell := range cmd.Commands() {
				shell.Example = "  shardtool completion " + shell.Name() + " > shardtool." + shell.Name()
				shell.Args = usageArgs(cobra.NoArgs)
			}
		}
	}
}

// withSignals cancels ctx at the first SIGINT, SIGTERM or SIGUSR1. A second one ends the process as
// usual. A closed pipe is an error of the write, not a signal.
func withSignals(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	ch := make(chan os.Signal, 1)
	signal.Ignore(syscall.SIGPIPE)
	signal.Notify(ch, stopSignals...)
	done := make(chan struct{})
	go func() {
		select {
		case s := <-ch:
			cancel(fmt.Errorf("%w (%v)", errSignal, s))
			signal.Stop(ch)
			time.AfterFunc(stopWithin, func() {
				fmt.Fprintf(os.Stderr,
					"shardtool: stopped by a signal (%v); gave up waiting for a read or write that does not end\n", s)
				exit(exitStopped)
			})
		case <-done:
		}
	}()
	return ctx, func() {
		signal.Stop(ch)
		close(done)
		cancel(nil)
	}
}
