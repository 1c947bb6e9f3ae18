// Command shardtool packs files into compressed shards, looks at them, checks them and reads them back.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// version is set when building: -ldflags "-X main.version=…".
var version = "dev"

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// run is the whole program; tests call it.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, stop := withSignals(context.Background())
	defer stop()
	root := newRoot()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err != nil && stopped(ctx) {
		err = &exitError{exitStopped, fmt.Errorf("%w: %w", context.Cause(ctx), err)}
	}
	return report(stderr, err)
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "shardtool",
		Short: "Training data as compressed shards: pack, look, check, read back",
		Long: `shardtool packs files into zstd-compressed tar shards with an index, and reads them back.

DATASET is the folder that holds the shards and their manifest; DATASET@0123456789abcdef picks a generation.
Sizes are written 64MiB or 1GB, durations 30s.

Exit codes:
` + exitCodes,
		Example:       "  shardtool pack photos/ out/ --name train\n  shardtool inspect out/\n  shardtool verify out/ --deep",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          usageArgs(cobra.NoArgs),
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usagef("%w; see `%s --help`", err, cmd.CommandPath())
	})
	root.AddCommand(newPack(), newInspect(), newLs(), newVerify(), newGet(), newCat(), newOrder(), newDoctor(), newPrune(), newVersion())
	return root
}

// errSignal is the cause of a context that a signal ended.
var errSignal = errors.New("stopped by a signal")

func stopped(ctx context.Context) bool { return errors.Is(context.Cause(ctx), errSignal) }

// withSignals cancels ctx at the first SIGINT, SIGTERM or SIGUSR1. A second one ends the process as usual.
func withSignals(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	ch := make(chan os.Signal, 1)
	signal.Notify(ch, os.Interrupt, syscall.SIGTERM, syscall.SIGUSR1)
	done := make(chan struct{})
	go func() {
		select {
		case s := <-ch:
			cancel(fmt.Errorf("%w (%v)", errSignal, s))
			signal.Stop(ch)
		case <-done:
		}
	}()
	return ctx, func() {
		signal.Stop(ch)
		close(done)
		cancel(nil)
	}
}
