package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
)

// TestMixChains: starts of cat, each a process for every rank, with other ranks, another batch
// size, other weights and other sources, from the checkpoint file of the start before. Together the
// ranks deliver what order lists; no source gives a sample of an epoch twice, and none leaves one
// out.
func TestMixChains(t *testing.T) {
	t.Parallel()
	sets := map[string]string{"a": smallSet(t), "b": smallSet(t), "c": smallSet(t)}
	chains := 12
	if testing.Short() {
		chains = 1
	}
	random := rand.New(rand.NewPCG(41, 42))
	for range chains {
		c := mixChain{random: random, sets: sets, dir: t.TempDir(), seed: strconv.FormatUint(random.Uint64(), 10), given: map[string]map[int]map[int]bool{}}
		for start := range 4 {
			c.run(t, start)
		}
		for source, epochs := range c.given {
			for epoch, numbers := range epochs {
				if _, later := epochs[epoch+1]; later && len(numbers) != smallSamples {
					t.Fatalf("epoch %d of %s has %d of %d samples", epoch, source, len(numbers), smallSamples)
				}
			}
		}
	}
}

// mixChain is a job that starts again and again.
type mixChain struct {
	random *rand.Rand
	sets   map[string]string
	dir    string
	seed   string
	given  map[string]map[int]map[int]bool // by source and epoch, the numbers of samples
}

// mix writes a mix of some of the sources.
func (c *mixChain) mix(t *testing.T) (file string) {
	t.Helper()
	text := []byte("epoch: 500\nsources:\n")
	for name, dir := range c.sets {
		if name == "a" || c.random.IntN(3) > 0 {
			text = fmt.Appendf(text, "  %s: {data: %q, weight: %d}\n", name, dir, 1+c.random.IntN(9))
		}
	}
	file = filepath.Join(c.dir, "mix.yaml")
	if err := os.WriteFile(file, text, 0o666); err != nil {
		t.Fatal(err)
	}
	return file
}

// run is one start: some batches on some ranks.
func (c *mixChain) run(t *testing.T, start int) {
	t.Helper()
	global, world, batches := 1+c.random.IntN(120), 1+c.random.IntN(3), 1+c.random.IntN(8)
	flags := []string{c.mix(t), "--epochs", "0", "--global-batch", strconv.Itoa(global)}
	if start == 0 {
		flags = append(flags, "--shuffle", "--seed", c.seed, "--tail", "wrap")
	} else {
		flags = append(flags, "--checkpoint-in", filepath.Join(c.dir, fmt.Sprintf("after-%d-0", start-1)), "--change-mix")
	}
	limit := func(n int) []string { return []string{"--limit", strconv.Itoa(n)} }
	want := shardtool(t, slices.Concat([]string{"order", "--keys"}, flags, limit(batches*global))...)
	var got, first []byte
	for rank := range world {
		file := filepath.Join(c.dir, fmt.Sprintf("after-%d-%d", start, rank))
		part := (rank+1)*global/world - rank*global/world
		if part == 0 {
			continue
		}
		got = append(got, shardtool(t, slices.Concat([]string{"cat", "--json", "--rank", strconv.Itoa(rank), "--world-size", strconv.Itoa(world), "--checkpoint-out", file},
			flags, limit(batches*part))...)...)
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = text
		} else if !bytes.Equal(text, first) {
			t.Fatalf("rank %d is at\n%s\nanother one at\n%s", rank, text, first)
		}
	}
	sorted := func(text []byte) [][]byte {
		return slices.SortedFunc(bytes.Lines(text), bytes.Compare)
	}
	if !slices.EqualFunc(sorted(got), sorted(want), bytes.Equal) {
		t.Fatalf("%d ranks deliver\n%s\norder lists\n%s", world, got, want)
	}
	// Rank 0 may have had no samples, where a batch is smaller than the world.
	if err := os.WriteFile(filepath.Join(c.dir, fmt.Sprintf("after-%d-0", start)), first, 0o666); err != nil {
		t.Fatal(err)
	}
	c.note(t, got)
}

// note takes down the samples of lines; none may be there already.
func (c *mixChain) note(t *testing.T, text []byte) {
	t.Helper()
	for line := range bytes.Lines(text) {
		var of struct {
			Source        string
			Epoch, Number int
		}
		if err := json.Unmarshal(line, &of); err != nil {
			t.Fatal(err)
		}
		if c.given[of.Source] == nil {
			c.given[of.Source] = map[int]map[int]bool{}
		}
		if c.given[of.Source][of.Epoch] == nil {
			c.given[of.Source][of.Epoch] = map[int]bool{}
		}
		if c.given[of.Source][of.Epoch][of.Number] {
			t.Fatalf("%s comes twice", line)
		}
		c.given[of.Source][of.Epoch][of.Number] = true
	}
}
