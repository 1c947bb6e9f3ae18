package main

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// help is what a command line prints that asks for help.
func help(t *testing.T, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(&out)
	root.SetErr(io.Discard)
	if err := root.Execute(); err != nil {
		t.Fatal(args, err)
	}
	return out.String()
}

// TestHelpFlags: the help of each command has each flag once and fits on two screens, and
// --help-all has the flags that it leaves out.
func TestHelpFlags(t *testing.T) {
	rare := map[string]bool{}
	for _, cmd := range newRoot().Commands() {
		short := help(t, cmd.Name(), "--help")
		all, many := short, cmd.Flags().Lookup(helpAllFlag) != nil
		if many {
			all = help(t, cmd.Name(), "--help-all")
		}
		count := 0
		cmd.InitDefaultHelpFlag()
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			line := "   --" + f.Name + " "
			if f.Shorthand != "" {
				line = "  -" + f.Shorthand + ", --" + f.Name + " "
			}
			want := 1
			if f.Hidden {
				want = 0
			} else if f.Name != helpAllFlag {
				count++
			}
			if n := strings.Count(all, line); n != want {
				t.Errorf("%s: --%s is %d times in the help with all flags, want %d", cmd.Name(), f.Name, n, want)
			}
			if many && slices.Contains(rareFlags, f.Name) {
				rare[f.Name], want = true, 0
			}
			if n := strings.Count(short, line); n != want {
				t.Errorf("%s: --%s is %d times in the help, want %d", cmd.Name(), f.Name, n, want)
			}
		})
		if many != (count > mostFlags) {
			t.Errorf("%s: %d flags, --help-all: %v", cmd.Name(), count, many)
		}
		_, flags, _ := strings.Cut(all, "\nExit codes: ")
		if groups := strings.Count(flags, ":\n  "); many && groups < 3 {
			t.Errorf("%s: %d flags in %d groups", cmd.Name(), count, groups)
		}
		if lines := strings.Count(short, "\n"); lines > 100 {
			t.Errorf("%s: --help has %d lines: more than two screens", cmd.Name(), lines)
		}
	}
	for _, name := range rareFlags {
		if !rare[name] {
			t.Errorf("--%s is in rareFlags, and no command with many flags has it", name)
		}
	}
}

// TestHelpCommands: the help of the program has each command once, below the title of its group.
func TestHelpCommands(t *testing.T) {
	out := help(t, "--help")
	for _, cmd := range newRoot().Commands() {
		want := 1
		if cmd.Hidden {
			want = 0
		}
		if n := strings.Count(out, "\n  "+cmd.Name()+" "); n != want {
			t.Errorf("%s is %d times in the help, want %d", cmd.Name(), n, want)
		}
	}
	at := 0
	for _, g := range commandGroups {
		i := strings.Index(out, "\n"+g.title+":\n")
		if i < at {
			t.Errorf("the title %q is not behind the one before:\n%s", g.title, out)
		}
		at = i
	}
}
