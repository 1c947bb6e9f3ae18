package main

import (
	"io"
	"os"
	"sync"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/shardtool/shardtool/internal/plain"
)

// screen is an output that people read: names from data cannot put escape sequences on it. Write
// may be called from many goroutines.
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

// forPeople is stdout: a screen where it is a terminal. Files and pipes get every byte as it is.
func forPeople(stdout io.Writer) io.Writer {
	if isTerminal(stdout) {
		return newScreen(stdout)
	}
	return stdout
}

// fileOf is the file that an output writes to, or nil.
func fileOf(w io.Writer) *os.File {
	if s, ok := w.(*screen); ok {
		w = s.out
	}
	f, _ := w.(*os.File)
	return f
}

// isTerminal reports whether what is written to w appears on a terminal.
func isTerminal(w io.Writer) bool {
	f := fileOf(w)
	return f != nil && term.IsTerminal(int(f.Fd()))
}

// movable reports whether w is a terminal on which a line can be drawn again.
func movable(w io.Writer) bool { return isTerminal(w) && os.Getenv("TERM") != "dumb" }

// refuseTar refuses to write an archive to a terminal, which would show it as noise. instead tells
// what to do.
func refuseTar(cmd *cobra.Command, instead string) error {
	if !isTerminal(cmd.OutOrStdout()) {
		return nil
	}
	return usagef("a tar is not for a terminal: %s", instead)
}

// shown is a name from data in a line for people.
func shown[T ~string](s T) string { return plain.Text(string(s)) }
