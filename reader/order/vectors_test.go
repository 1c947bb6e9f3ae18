package order

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"hash/crc32"
	"io"
	"os"
	"slices"
	"strconv"
	"testing"
)

type vectors struct {
	Philox []struct{ Counter, Key, Out []string }
	Words  struct {
		Key                   string
		Dom, Lane, Epoch, Obj uint32
		First                 []uint32
	}
	Shuffle10 []uint32
	Turn      map[string][]uint32
	Cases     []vectorCase
}

type vectorCase struct {
	Name            string
	Blocks          []uint32
	ShardFirstBlock []int `json:"shard_first_block"`
	Seed            string
	Epoch           uint64
	Lanes           uint32
	RunBlocks       uint32 `json:"run_blocks"`
	Delay, Head     uint32
	Affinity        Affinity
	GlobalBatch     int `json:"global_batch"`
	Tail            Tail
	FirstBatch      []uint64 `json:"first_batch"`
	LastBatch       []uint64 `json:"last_batch"`
	CRC             uint32   `json:"crc32_epoch"`
	WorldSize       int      `json:"world_size"`
	CRCRanks        []uint32 `json:"crc32_ranks"`
}

func readVectors(t testing.TB) vectors {
	t.Helper()
	text, err := os.ReadFile("../../testdata/order/order-vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var v vectors
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	if len(v.Philox) == 0 || len(v.Cases) == 0 {
		t.Fatal("no vectors")
	}
	return v
}

func hexWords(t *testing.T, texts []string) []uint32 {
	t.Helper()
	var words []uint32
	for _, s := range texts {
		x, err := strconv.ParseUint(s, 16, 32)
		if err != nil {
			t.Fatal(err)
		}
		words = append(words, uint32(x))
	}
	return words
}

func TestVectorsOfWords(t *testing.T) {
	v := readVectors(t)
	for _, p := range v.Philox {
		c, k, want := hexWords(t, p.Counter), hexWords(t, p.Key), hexWords(t, p.Out)
		a, b, d, e := philox(c[0], c[1], c[2], c[3], k[0], k[1])
		if got := []uint32{a, b, d, e}; !slices.Equal(got, want) {
			t.Errorf("philox(%x, %x) = %x, want %x", c, k, got, want)
		}
	}
	key, err := strconv.ParseUint(v.Words.Key, 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	w := newWords(key, v.Words.Dom, v.Words.Lane, v.Words.Epoch, v.Words.Obj)
	x, y := w.four(0), w.four(1)
	if got := append(x[:], y[:]...)[:len(v.Words.First)]; !slices.Equal(got, v.Words.First) {
		t.Errorf("WORDS = %d, want %d", got, v.Words.First)
	}
	a := []uint32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}
	b := []uint64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}
	shuffle(a, w)
	shuffle(b, w)
	if !slices.Equal(a, v.Shuffle10) {
		t.Errorf("SHUFFLE = %d, want %d", a, v.Shuffle10)
	}
	for i := range a {
		if uint64(a[i]) != b[i] {
			t.Errorf("SHUFFLE of wide values = %d, of narrow ones %d", b, a)
		}
	}
	for size, want := range v.Turn {
		n, _ := strconv.Atoi(size)
		if got := makeTurn(uint32(n)); !slices.Equal(got, want) {
			t.Errorf("turn of %d = %d, want %d", n, got, want)
		}
	}
}

// TestWordsAhead: words drawn ahead are those drawn one by one, and no block is passed over.
func TestWordsAhead(t *testing.T) {
	w := newWords(0x0123456789abcdef, domainTick, 5, 6, 7)
	for n := 1; n <= 70; n++ {
		var draws [64]uint32
		got := w.ahead(&draws, 11, n)
		if got%8 != 0 || got < min(n, len(draws)) || got >= n+8 {
			t.Fatalf("%d words ahead for %d", got, n)
		}
		for i, x := range draws[:got] {
			if four := w.four(11 + uint32(i)/4); x != four[i%4] {
				t.Fatalf("word %d ahead is %x, want %x", i, x, four[i%4])
			}
		}
	}
}

// TestShuffles: both ways to shuffle are Fisher-Yates with one word after another, also where a
// word is drawn again: in a wide range many are, and of the 57 values, where the words drawn ahead
// do not suffice then, one is.
func TestShuffles(t *testing.T) {
	for _, c := range []struct {
		n     int
		obj   uint32
		again bool
	}{{0, 1, false}, {1, 1, false}, {2, 1, false}, {9, 1, false}, {57, 3432905, true}, {64, 1, false}, {65, 1, false}, {300, 1, false}, {1 << 21, 1, true}} {
		want := make([]uint32, c.n)
		for i := range want {
			want[i] = uint32(i)
		}
		a, b := slices.Clone(want), slices.Clone(want)
		w := newWords(1, domainSlot, 2, 3, c.obj)
		again := false
		for i, k := c.n-1, uint32(0); i > 0; k++ {
			four := w.four(k / 4)
			j, ok := bounded(four[k%4], uint32(i)+1)
			if !ok {
				again = true
				continue
			}
			want[i], want[j] = want[j], want[i]
			i--
		}
		shuffle(a, w)
		shuffleMany(b, w)
		if !slices.Equal(a, want) || !slices.Equal(b, want) || again != c.again {
			t.Errorf("%d values: shuffle is right: %t, shuffleMany: %t; a word is drawn again: %t", c.n, slices.Equal(a, want), slices.Equal(b, want), again)
		}
	}
}

func (v *vectorCase) plan(t testing.TB) *Plan {
	t.Helper()
	seed, err := strconv.ParseUint(v.Seed, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	p, err := New(Table{Samples: v.Blocks, ShardFirst: v.ShardFirstBlock}, "", Params{
		Seed: seed, Shuffle: true, Lanes: v.Lanes, RunBlocks: v.RunBlocks, Delay: v.Delay, Head: v.Head,
		Affinity: v.Affinity, Tail: v.Tail,
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// batchesOf reads the batches of one rank from a place to the start of epoch end.
func batchesOf(t testing.TB, p *Plan, epoch, position, end uint64, s Split) [][]uint64 {
	t.Helper()
	c, err := p.Seek(epoch, position)
	if err != nil {
		t.Fatal(err)
	}
	c.Until(end)
	var batches [][]uint64
	for {
		refs, _, err := c.NextBatch(nil, s)
		if errors.Is(err, io.EOF) {
			return batches
		}
		if err != nil {
			t.Fatal(err)
		}
		numbers := make([]uint64, 0, len(refs))
		for _, r := range refs {
			numbers = append(numbers, r.Number)
		}
		batches = append(batches, numbers)
	}
}

func crcOf(batches [][]uint64) uint32 {
	var text []byte
	for _, b := range batches {
		for _, n := range b {
			text = binary.LittleEndian.AppendUint64(text, n)
		}
	}
	return crc32.ChecksumIEEE(text)
}

func TestVectorsOfOrders(t *testing.T) {
	for _, v := range readVectors(t).Cases {
		t.Run(v.Name, func(t *testing.T) {
			p := v.plan(t)
			all := batchesOf(t, p, v.Epoch, 0, v.Epoch+1, Split{v.GlobalBatch, 0, 1})
			first, last := all[0], all[len(all)-1]
			// The vectors hold the first 24 numbers of either batch.
			if got := first[:min(24, len(first))]; !slices.Equal(got, v.FirstBatch) {
				t.Errorf("first batch %d, want %d", got, v.FirstBatch)
			}
			if got := last[:min(24, len(last))]; !slices.Equal(got, v.LastBatch) {
				t.Errorf("last batch %d, want %d", got, v.LastBatch)
			}
			if got := crcOf(all); got != v.CRC {
				t.Errorf("CRC of the epoch %d, want %d", got, v.CRC)
			}
			for r, want := range v.CRCRanks {
				if got := crcOf(batchesOf(t, p, v.Epoch, 0, v.Epoch+1, Split{v.GlobalBatch, r, v.WorldSize})); got != want {
					t.Errorf("CRC of rank %d of %d: %d, want %d", r, v.WorldSize, got, want)
				}
			}
		})
	}
}

// choiceVector is a table, what is asked for, and what SPEC.md 9.3 chooses; Want is nil where it
// refuses.
type choiceVector struct {
	Name   string
	Choose pythonChoice
	Want   *struct{ V, E, W, H uint32 }
}

func readChoices(t *testing.T) []choiceVector {
	t.Helper()
	text, err := os.ReadFile("../../testdata/order/choice-vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var v struct{ Choices []choiceVector }
	if err := json.Unmarshal(text, &v); err != nil || len(v.Choices) == 0 {
		t.Fatalf("%d vectors, %v", len(v.Choices), err)
	}
	return v.Choices
}

func TestVectorsOfChoices(t *testing.T) {
	for _, v := range readChoices(t) {
		p, err := v.Choose.choose()
		switch {
		case v.Want == nil && err == nil:
			t.Errorf("%s: %+v, want a refusal", v.Name, p)
		case v.Want != nil && (err != nil || p.Lanes != v.Want.V || p.RunBlocks != v.Want.E || p.Delay != v.Want.W || p.Head != v.Want.H):
			t.Errorf("%s: %+v, %v; want %+v", v.Name, p, err, *v.Want)
		}
	}
}

// TestRejection: the draws that BOUNDED repeats are too rare for the vectors to hold one.
func TestRejection(t *testing.T) {
	for _, c := range []struct {
		word, n, j uint32
		ok         bool
	}{
		{0, 3, 0, false},         // 0 < 2^32 mod 3 = 1
		{0xAAAAAAAB, 3, 2, true}, // 3·word = 2·2^32 + 1: at the limit
		{0, 1 << 16, 0, true},    // powers of two take every word
		{0, 1<<31 + 1, 0, false}, // almost half of all words are repeated
		{1, 1<<31 + 1, 0, true},
	} {
		if j, ok := bounded(c.word, c.n); j != c.j || ok != c.ok {
			t.Errorf("bounded(%#x, %d) = %d, %v, want %d, %v", c.word, c.n, j, ok, c.j, c.ok)
		}
	}
	// About n²/2^34 = 58 repeats in a million.
	for _, n := range []int{0, 1, 2, 3, 4, 5, 255, 256, 257, 258, 511, 512, 513, 1_000_000} {
		a := make([]uint32, n)
		for i := range a {
			a[i] = uint32(i)
		}
		b, c := slices.Clone(a), slices.Clone(a)
		shuffle(a, newWords(3, domainRuns, 0, 1, 0))
		shuffleMany(b, newWords(3, domainRuns, 0, 1, 0))
		referenceShuffle(c, 3, 1, 0, 1, 0)
		if !slices.Equal(a, c) || !slices.Equal(b, c) {
			t.Errorf("%d values are permuted otherwise than by the reference", n)
		}
	}
}
