package reader

import (
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/internal/format/names"
	"github.com/shardtool/shardtool/internal/order/ledger"
	"github.com/shardtool/shardtool/reader/order"
)

// TestLayersElastic makes chains of starts, at each of which layers are added, removed or exchanged
// and the number of ranks and the batch size change. Every sample comes once in an epoch, in one
// order, with the fields of the data sets that are open, which carry its key. CHAINS is how many
// chains there are.
func TestLayersElastic(t *testing.T) {
	watch(t)
	l := newLayered(t, 300)
	l.add(t, "again", "caption", len(l.set.Manifest.Shards), nil) // in place of caption
	random := rand.New(rand.NewPCG(7, 8))
	chains := 6
	if text := os.Getenv("CHAINS"); text != "" {
		var err error
		if chains, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	for chain := range chains {
		c := layersChain{layered: l, random: random, o: StreamOptions{
			Shuffle: true, Seed: random.Uint64(), Epochs: 2, Tail: order.TailShort, Order: OrderOptions{Lanes: 6, Delay: 4},
		}}
		if chain%2 == 1 { // the order is chosen by the bytes of the layers at the first start
			c.o.Order, c.layersNeeded = OrderOptions{ShuffleMemory: 1 << 20}, true
		}
		if chain%3 == 1 {
			c.o.Tuning.Memory = 1 << 20
		}
		c.run(t)
	}
}

// layersChain is one chain of TestLayersElastic.
type layersChain struct {
	*layered
	random       *rand.Rand
	o            StreamOptions
	layersNeeded bool
	came         []uint64 // numbers, in the order of the stream
}

func (c *layersChain) run(t *testing.T) {
	var cp *Checkpoint
	for done := false; !done; {
		layers, fields := c.choose()
		d := c.open(t, fields, layers...)
		o := c.o
		o.Checkpoint, o.World, o.GlobalBatch = cp, 1+c.random.IntN(5), 1+c.random.IntN(60)
		steps := 1 + c.random.IntN(6)
		parts := make([][][]uint64, o.World) // by rank and step
		for o.Rank = range o.World {
			s, err := d.Stream(t.Context(), o)
			if err != nil {
				t.Fatalf("layers %v, fields %v: %v", layers, fields, err)
			}
			for range steps {
				b, err := s.Next(t.Context())
				if errors.Is(err, io.EOF) {
					done = true
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				for i := range b.Samples {
					smp := &b.Samples[i]
					if want := c.want(smp.Number, c.set.Keys[smp.Number], fields, layers...); !slices.Equal(textOf(smp), want) {
						t.Fatalf("layers %v: sample %d has %q, want %q", layers, smp.Number, textOf(smp), want)
					}
				}
				parts[o.Rank] = append(parts[o.Rank], numbersOf(b))
			}
			at, err := s.Checkpoint()
			if err != nil {
				t.Fatal(err)
			}
			cp = throughText(t, at)
			s.Close()
		}
		for step := range parts[0] {
			for rank := range parts {
				c.came = append(c.came, parts[rank][step]...)
			}
		}
		d.Close()
	}
	count := make([]int, len(c.set.Keys))
	for i, n := range c.came {
		if count[n]++; count[n] != 1+i/len(count) {
			t.Fatalf("sample %d came %d times in %d epochs", n, count[n], 1+i/len(count))
		}
	}
	if len(c.came) != int(c.o.Epochs)*len(count) {
		t.Fatalf("%d samples came, not %d", len(c.came), int(c.o.Epochs)*len(count))
	}
}

// choose chooses the layers and fields of a start.
func (c *layersChain) choose() (layers, fields []string) {
	for _, name := range []string{"score", "text", "caption"} {
		if c.random.IntN(2) == 0 {
			layers = append(layers, name)
		}
	}
	switch {
	case slices.Contains(layers, "caption") && c.random.IntN(2) == 0:
		layers[len(layers)-1] = "again"
	case c.layersNeeded && layers == nil:
		layers = []string{"again"}
	}
	if c.random.IntN(2) == 0 {
		fields = []string{"caption?", "txt"}
	}
	return layers, fields
}

// TestLayersShuffleMemory resumes with the shuffle memory of the first start and other layers,
// whose bytes would choose another window.
func TestLayersShuffleMemory(t *testing.T) {
	l := newLayered(t, 900)
	spec := Spec{Order: order.Choice{Shuffle: true, Memory: 300 << 10, GlobalBatch: 8}, Said: map[string]bool{"shuffle-memory": true}}
	read := func(fields []string, from *Checkpoint, layers ...string) (order.Params, *Checkpoint, error) {
		d := l.open(t, fields, layers...)
		run, err := d.read(t.Context(), spec, from, Change{}, Planning{})
		if err != nil {
			return order.Params{}, nil, err
		}
		defer run.Close()
		cp, err := run.Checkpoint(Place{Position: 16}, 8, ledger.Mark{})
		return run.Info().Plans[0].Params(), &cp, err
	}
	first, cp, err := read([]string{"caption"}, nil, "caption")
	if err != nil {
		t.Fatal(err)
	}
	if alone, _, err := read(nil, nil); err != nil || alone == first {
		t.Fatalf("the layers choose no other order: %+v, %v", alone, err)
	}
	if again, _, err := read(nil, cp, "score"); err != nil || again != first {
		t.Errorf("with another layer: %+v, %v; want %+v", again, err, first)
	}
	if _, _, err := read(nil, cp); !errors.Is(err, order.ErrMismatch) {
		t.Errorf("without layers: %v", err)
	}
}

// TestLayersLog: the first line of the log names the layers with their generations.
func TestLayersLog(t *testing.T) {
	l := newLayered(t, 50)
	lines := make(chan string, 100)
	log := slog.New(slog.NewTextHandler(writerFunc(func(p []byte) (int, error) {
		lines <- string(p)
		return len(p), nil
	}), nil))
	d := l.open(t, nil, "score", "caption")
	s, err := d.Stream(t.Context(), StreamOptions{GlobalBatch: 10, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	first := <-lines
	s.Close()
	for name, of := range d.Layers() {
		if want := name + "@" + names.Generation(of.Info().Tables); !strings.Contains(first, want) {
			t.Errorf("%q lacks %s", first, want)
		}
	}
}
