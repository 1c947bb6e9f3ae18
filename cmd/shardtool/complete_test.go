package main

import (
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// TestFlagValues: each completion of a flag is a value that its command accepts, and the error for
// another value lists the same words, so the lists cannot become out of date.
func TestFlagValues(t *testing.T) {
	used := map[string]bool{}
	for _, cmd := range newRoot().Commands() {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			values := valuesOf(cmd, f.Name)
			if values == nil {
				return
			}
			used[f.Name], used[cmd.Name()+" "+f.Name] = true, true
			for _, v := range append([]string{"none-of-them"}, values...) {
				msg := tried(t, cmd, f.Name, v)
				refused := strings.Contains(msg, "--"+f.Name) && strings.Contains(msg, `"`+v+`"`)
				if refused != (v == "none-of-them") {
					t.Errorf("%s --%s %s: refused: %v: %s", cmd.Name(), f.Name, v, refused, msg)
				}
				for _, other := range values {
					if refused && !strings.Contains(msg, other) {
						t.Errorf("%s --%s: the error does not name %s: %s", cmd.Name(), f.Name, other, msg)
					}
				}
			}
		})
	}
	for name := range flagValues {
		if !used[name] {
			t.Errorf("no command has --%s", name)
		}
	}
}

// tried returns the output of a command for a flag's value, with arguments that do not exist.
func tried(t *testing.T, cmd *cobra.Command, flag, value string) string {
	t.Helper()
	dir := t.TempDir()
	args := []string{cmd.Name(), dir + "/none", dir + "/out", "--" + flag, value}
	if !strings.Contains(cmd.Use, "SRC") {
		args = slices.Delete(args, 2, 3)
	}
	switch {
	case cmd.Name() == "index":
		args = slices.Delete(args, 2, 3)
	case flag == "pack-remainder", flag == "token-dtype":
		args = append(args, "--pack-tokens", "8")
		if value == "pad" {
			args = append(args, "--pad-id", "0")
		}
	case flag == "share-by":
		args = append(args, "--share", "0%..50%")
	case cmd.Name() == "stage":
		args = append(args, "--cache", dir)
	case cmd.Name() == "export":
		src := t.TempDir()
		if err := os.WriteFile(src+"/a.txt", nil, 0o600); err != nil {
			t.Fatal(err)
		}
		run([]string{"pack", src, dir + "/none"}, nil, io.Discard, io.Discard)
		args = append(args, "--out", dir)
	case cmd.Name() == "commit", cmd.Name() == "missing":
		args = append(args, "--parts", "2")
	}
	var stderr strings.Builder
	run(args, strings.NewReader(""), &stderr, &stderr)
	return stderr.String()
}
