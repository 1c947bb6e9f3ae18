package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCompareOld compares two small programs: one that is half as fast as the older one, and whose
// group b fails.
func TestCompareOld(t *testing.T) {
	calls := filepath.Join(t.TempDir(), "calls")
	checkout := func(name string, value int, failing bool) string {
		dir := t.TempDir()
		program := fmt.Sprintf(`package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	asJSON, group := flag.Bool("json", false, ""), flag.String("run", "", "")
	flag.Int("mib", 0, "")
	flag.Int("times", 0, "")
	flag.Duration("long", 0, "")
	flag.String("dir", "", "")
	flag.Parse()
	f, err := os.OpenFile(%q, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil || !*asJSON {
		os.Exit(9)
	}
	fmt.Fprint(f, %q+*group+" ")
	if *group == "b" && %v {
		fmt.Fprintln(os.Stderr, "bench: no such group")
		os.Exit(2)
	}
	fmt.Printf("[{\"group\":%%q,\"name\":\"rate\",\"value\":%d,\"unit\":\"x\",\"goal\":\"≥ 1\"}]", *group)
}
`, calls, name, failing, value)
		for path, text := range map[string]string{"go.mod": "module example.com/" + name + "\n", "bench/main.go": program} {
			path = filepath.Join(dir, path)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	o := options{old: checkout("old", 4, false), only: []string{"a", "b"}, rounds: 2}
	pairs, err := compareOld(t.Context(), t.TempDir(), checkout("new", 2, true), o)
	if err == nil || strings.Count(err.Error(), "b of ") != 2 || strings.Contains(err.Error(), "a of ") {
		t.Errorf("the error of the group that fails in two rounds: %v", err)
	}
	if len(pairs) != 2 || !pairs[0].Slower || pairs[0].Better != 0.5 || pairs[0].Rounds != 2 || pairs[1].Missing != "only in the old program" {
		t.Errorf("%+v", pairs)
	}
	if got, err := os.ReadFile(calls); err != nil || string(got) != "olda newa oldb newb newa olda newb oldb " {
		t.Errorf("the programs ran in the order %q: %v", got, err)
	}

	o.old = "no-such-revision"
	if _, err := compareOld(t.Context(), t.TempDir(), ".", o); err == nil || !strings.Contains(err.Error(), "no-such-revision is neither a folder nor a revision") {
		t.Errorf("a revision that does not exist: %v", err)
	}
}
