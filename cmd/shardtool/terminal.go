package main

import (
	"io"
	"os"
	"sync"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/shardtool/shardtool/internal/sys/plain"
)

// screen is an output for people: it escapes control characters, so that names from data cannot
// send escape sequences. Write may be called concurrently.
type screen struct {
	mu    sync.Mutex
	plain *plain.Writer
	out   io.Writer
}

func newScreen(out io.Writer) *screen { return &screen{plain: plain.NewWriter(out), out: out} }

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.plain.Write(p)
}

// forPeople returns a screen if stdout is a terminal. Files and pipes get every byte unchanged.
func forPeople(stdout io.Writer) io.Writer {
	if isTerminal(stdout) {
		return newScreen(stdout)
	}
	return stdout
}

// fileOf returns the file that an output writes to, or nil.
func fileOf(w io.Writer) *os.File {
	if s, ok := w.(*screen); ok {
		w = s.out
	}
	f, _ := w.(*os.File)
	return f
}

// isTerminal reports whether w writes to a terminal.
func isTerminal(w io.Writer) bool {
	f := fileOf(w)
	return f != nil && term.IsTerminal(int(f.Fd()))
}

// movable reports whether w is a terminal on which a line can be drawn again.
func movable(w io.Writer) bool { return isTerminal(w) && os.Getenv("TERM") != "dumb" }

// refuseTar refuses to write an archive to a terminal. instead is the advice to the user.
func refuseTar(cmd *cobra.Command, instead string) error {
	if !isTerminal(cmd.OutOrStdout()) {
		return nil
	}
	return usagef("a tar is not for a terminal: %s", instead)
}

// shown returns a name from data with control characters escaped.
func shown[T ~string](s T) string { return plain.Text(string(s)) }
