package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/shardtool/shardtool/internal/order/mix"
)

// TestMixKilled kills cat of a mix at random moments and continues from --checkpoint-out: what was
// taken up to each file's checkpoint, one after the other, is the order of a run that nobody
// killed.
func TestMixKilled(t *testing.T) {
	t.Parallel()
	a, b := smallSet(t), smallSet(t)
	dir := t.TempDir()
	file, name := filepath.Join(dir, "ckpt"), filepath.Join(dir, "mix.yaml")
	text := fmt.Appendf(nil, "sources:\n  a: {data: %q, weight: 2}\n  b: {data: %q, weight: 1, max_epochs: 2}\n", a, b)
	if err := os.WriteFile(name, text, 0o666); err != nil {
		t.Fatal(err)
	}
	flags := []string{"--shuffle", "--seed", "4", "--epochs", "3", "--global-batch", "12", "--tail", "short"}
	wholeLines := func(text []byte) [][]byte {
		all := bytes.SplitAfter(text, []byte("\n"))
		return all[:len(all)-1] // the last one is empty, or cut
	}
	want := wholeLines(shardtool(t, slices.Concat([]string{"order", name, "--keys"}, flags)...))
	consumed, kills, most := 0, 0, 15
	if testing.Short() {
		most = 3
	}
	for done := false; !done; kills++ {
		args := slices.Concat([]string{"cat", name, "--json", "--checkpoint-out", file}, flags)
		if _, err := os.Stat(file); err == nil {
			args = append(args, "--checkpoint-in", file)
		}
		take := rand.IntN(40_000)
		if kills >= most {
			take = 1 << 30
		}
		var out []byte
		out, done = killed(t, take, args...)
		got := wholeLines(out)
		at := consumed
		if text, err := os.ReadFile(file); err == nil {
			cp, err := mix.DecodeCheckpoint(text)
			if err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			at = int(cp.Position)
		}
		if at < consumed || at-consumed > len(got) {
			t.Fatalf("the checkpoint is at %d, the run began at %d and wrote %d samples", at, consumed, len(got))
		}
		for i, line := range got[:at-consumed] {
			if !bytes.Equal(line, want[consumed+i]) {
				t.Fatalf("place %d is %s, want %s", consumed+i, line, want[consumed+i])
			}
		}
		consumed = at
	}
	t.Logf("killed %d times", kills-1)
	if consumed != len(want) {
		t.Fatalf("%d samples came, of %d", consumed, len(want))
	}
}
