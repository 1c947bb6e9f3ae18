package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/ingest"
	"github.com/shardtool/shardtool/internal/order/ledger"
	"github.com/shardtool/shardtool/internal/sys/plain"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/open"
	"github.com/shardtool/shardtool/writer"
)

// Exit codes: a contract with scripts.
const (
	exitFailed     = 1
	exitUsage      = 2
	exitCorrupt    = 3
	exitSkipped    = 4
	exitStopped    = 5
	exitNotFound   = 6
	exitCheckpoint = 7
	exitUnread     = 8
)

// stopWithin is the time that work in progress gets to end after a signal. Cutting it off cannot
// harm a data set.
const stopWithin = 9 * time.Second

// exitMeanings describes the exit codes in help, by code.
var exitMeanings = []string{
	"done", "failed", "wrong usage", "corrupt data, or too many samples skipped", "done, some samples skipped",
	"stopped by a signal, what was finished is saved", "not found: data set, key, field, parts of a pack",
	"the checkpoint does not fit", "could not be read",
}

// exitError is an error with an exit code. err is nil when the message was printed already.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// usagef returns an error for wrong usage.
func usagef(msg string, args ...any) error { return &exitError{exitUsage, fmt.Errorf(msg, args...)} }

func usageArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := cmp.Or(unitApart(cmd, args), longDash(cmd, args)); err != nil {
			return err
		}
		if check(cmd, args) == nil {
			return nil
		}
		use, _, _ := strings.Cut(cmd.Use, " --")
		needed := slices.DeleteFunc(strings.Fields(use)[1:], func(word string) bool { return word[0] == '[' })
		wrong := "too many"
		if len(args) < len(needed) {
			wrong = "too few"
		}
		if len(args) > 6 { // of a glob of the shell
			args = append(args[:6:6], "…")
		}
		write := fmt.Sprintf("write `%s`", strings.TrimSuffix(cmd.UseLine(), " [flags]"))
		if wrong == "too many" {
			write = cmp.Or(arguments(cmd, args), write)
		}
		given := strings.Join(append([]string{cmd.CommandPath()}, args...), " ")
		return usagef("%s arguments in `%s`: %s; see `%s --help`", wrong, given, write, cmd.CommandPath())
	}
}

// unitApart is the error of a size whose unit, such as MB, is a word of its own, which would be a file
// otherwise. A single letter is a file.
func unitApart(cmd *cobra.Command, args []string) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		size, ok := f.Value.(*sizeFlag)
		if !ok || *size >= 10_000 { // which needs no unit
			return
		}
		for _, arg := range args {
			if _, no := humanize.ParseBytes("1" + arg); no == nil && len(arg) > 1 && !strings.ContainsFunc(arg, unicode.IsDigit) {
				err = usagef("--%s %d and %s apart: write --%s %d%s", f.Name, *size, arg, f.Name, *size, arg)
			}
		}
	})
	return err
}

// report prints an error on one line and returns the exit code.
func report(stderr io.Writer, err error) int {
	if err == nil {
		return 0
	}
	code := exitCode(err)
	if code == 0 {
		return 0
	}
	if err.Error() != "" {
		fmt.Fprintf(stderr, "shardtool: %s\n", plain.Line(objstore.Redact(err.Error()+remedy(err))))
		if e, ok := errors.AsType[*ingest.Error](err); ok { // a program that helps has lines of its own
			for line := range strings.Lines(e.Program) {
				fmt.Fprintf(stderr, "    %s\n", plain.Text(objstore.Redact(strings.TrimSuffix(line, "\n"))))
			}
		}
	}
	return code
}

func exitCode(err error) int {
	var e *exitError
	var sample *writer.SampleError
	switch {
	case errors.As(err, &e):
		return e.code
	case errors.As(err, new(*open.NameError)), errors.As(err, new(*ingest.Error)):
		return exitUsage
	case errors.Is(err, syscall.EPIPE): // the reader of our output closed the pipe
		return 0
	case errors.Is(err, format.ErrCorrupt), errors.Is(err, format.ErrVersion), errors.Is(err, format.ErrMismatch),
		errors.Is(err, writer.ErrSkipped),
		errors.Is(err, ledger.ErrFull):
		return exitCorrupt
	case errors.As(err, &sample): // a file that vanished while it was packed
		return exitFailed
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, writer.ErrEmpty):
		return exitNotFound
	}
	return exitFailed
}

// usage marks an error as an error in what the user wrote.
func usage(err error) error { return &exitError{exitUsage, err} }
