package order

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
)

func aCheckpoint() Checkpoint {
	return Checkpoint{
		Params: Params{
			Seed: math.MaxUint64, Shuffle: true, Lanes: 96, RunBlocks: 1, Delay: 16, Head: 4, MixBlock: 10,
			Affinity: AffinityEpoch, Tail: TailWrap,
		},
		Epoch: 3, Position: 123456, GlobalBatch: 1024,
		Sources:  []SourceMark{{Digest: strings.Repeat("ab", 32), Samples: 1e9, Weight: 1, Key: math.MaxUint64}},
		Tables:   "manifest-0123456789abcdef.bin",
		SkipHash: strings.Repeat("cd", 32), Skipped: 3,
	}
}

func encode(t testing.TB, c Checkpoint) []byte {
	t.Helper()
	text, err := AppendCheckpoint(nil, c)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func sameCheckpoint(a, b Checkpoint) bool {
	x, y := a.text(), b.text()
	p, _ := json.Marshal(x)
	q, _ := json.Marshal(y)
	return bytes.Equal(p, q)
}

// The text is a contract with other languages: changing it needs another version.
func TestCheckpointText(t *testing.T) {
	const want = `{"version":1,"algorithm":"lane-delay/1","seed":"18446744073709551615","epoch":3,"position":123456,"shuffle":true,` +
		`"V":96,"E":1,"W":16,"H":4,"T":10,"affinity":"epoch","tail":"wrap","global_batch":1024,` +
		`"sources":[{"digest":"abababababababababababababababababababababababababababababababab","N":1000000000,"weight":1,"key":"18446744073709551615"}],` +
		`"tables":"manifest-0123456789abcdef.bin","skip_hash":"cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd","skipped":3,` +
		`"check":"f11565f6"}`
	if got := string(encode(t, aCheckpoint())); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestCheckpointRoundTrip(t *testing.T) {
	large := aCheckpoint()
	large.Lanes, large.RunBlocks, large.Delay, large.Head, large.MixBlock = 1<<24, math.MaxUint32, math.MaxUint32, math.MaxUint32, math.MaxUint32
	large.Epoch, large.Position, large.GlobalBatch = maxEpochs-1, math.MaxInt64-1, math.MaxInt32
	large.Sources[0].Samples, large.Skipped = math.MaxInt64, math.MaxUint64
	large.Sources[0].Digest = strings.Repeat("d", maxName)
	large.Tables, large.SkipHash = strings.Repeat("t", maxName), strings.Repeat("s", maxName)
	small := aCheckpoint()
	small.Seed, small.Sources[0].Key, small.Shuffle, small.Delay, small.Head = 0, 0, false, 1, 1
	small.Tables, small.SkipHash, small.Skipped, small.Epoch, small.Position = "", "", 0, maxEpochs, 0
	for _, c := range []Checkpoint{aCheckpoint(), large, small} {
		text := encode(t, c)
		if len(text) > MaxCheckpoint {
			t.Errorf("%d bytes", len(text))
		}
		got, err := DecodeCheckpoint(text)
		if err != nil || !sameCheckpoint(got, c) {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
		// Another tool may indent it or sort its members.
		var members map[string]any
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		if err := d.Decode(&members); err != nil {
			t.Fatal(err)
		}
		indented, _ := json.MarshalIndent(members, "", "    ")
		if got, err := DecodeCheckpoint(indented); err != nil || !sameCheckpoint(got, c) {
			t.Errorf("%s: %v", indented, err)
		}
	}
}

func TestCheckpointCutOrEdited(t *testing.T) {
	text := encode(t, aCheckpoint())
	for n := range text {
		if _, err := DecodeCheckpoint(text[:n]); err == nil {
			t.Fatalf("cut to %d bytes: accepted", n)
		}
	}
	want, err := DecodeCheckpoint(text)
	if err != nil {
		t.Fatal(err)
	}
	for i := range text {
		for bit := range 8 {
			damaged := bytes.Clone(text)
			damaged[i] ^= 1 << bit
			if got, err := DecodeCheckpoint(damaged); err == nil && !sameCheckpoint(got, want) {
				t.Fatalf("bit %d of byte %d: accepted: %s", bit, i, damaged)
			}
		}
	}
	for _, e := range []struct{ old, new, says string }{
		{`"version":1`, `"version":2`, "version 2"},
		{`"version":1`, `"version":"1"`, "version"},
		{`lane-delay/1`, `lane-delay/2`, "algorithm"},
		{`"seed":"18446744073709551615"`, `"seed":18446744073709551615`, "seed"},
		{`"seed":"18446744073709551615"`, `"seed":"18446744073709551616"`, "seed"},
		{`"seed":"18446744073709551615"`, `"seed":"017"`, "seed"},
		{`"V":96`, `"V":0`, "lanes"},
		{`"V":96`, `"v":96`, "no V"},
		{`"V":96`, `"V":96,"v":96`, "unknown"},
		{`"V":96`, `"V":null`, "no V"},
		{`"W":16`, `"W":2`, "head"},
		{`"affinity":"epoch"`, `"affinity":"Epoch"`, "affinity"},
		{`"tail":"wrap"`, `"tail":"lost"`, "tail"},
		{`"position":123456`, `"position":1000000000`, "position"},
		{`"position":123456`, `"position":-1`, "position"},
		{`"position":123456`, `"position":123457`, "edited"},
		{`"epoch":3`, `"epoch":4294967297`, "epoch"},
		{`"N":1000000000`, `"N":1000000001`, "edited"},
		{`"N":1000000000`, `"n":1000000000`, "no N"},
		{`"weight":1`, `"weight":2`, "weight"},
		{`"key":"18446744073709551615"`, `"key":"1"`, "key"},
		{`"sources":[{`, `"sources":[null,{`, "no digest"},
		{`"sources":[`, `"more":[`, "no sources"},
		{`"skipped":3`, `"skipped":3,"extra":1`, "unknown"},
		{`"global_batch":1024`, `"global_batch":-1`, "global_batch"},
		{`"tables":"m`, `"tables":"\n`, "tables"},
		{`{"version"`, `{}{"version"`, "JSON"},
	} {
		edited := strings.Replace(string(text), e.old, e.new, 1)
		if edited == string(text) {
			t.Fatalf("%s is not in %s", e.old, text)
		}
		if _, err := DecodeCheckpoint([]byte(edited)); err == nil || !strings.Contains(err.Error(), e.says) {
			t.Errorf("%s for %s: %v", e.new, e.old, err)
		}
	}
	if got, err := DecodeCheckpoint(bytes.Replace(text, []byte(`"V":96`), []byte(`"V":95`), 1)); !errors.Is(err, ErrEdited) || got.Lanes != 95 {
		t.Errorf("edited: %+v, %v", got, err)
	}
	if _, err := DecodeCheckpoint(bytes.Repeat([]byte(" "), maxCheckpointRead+1)); err == nil {
		t.Error("a large file: accepted")
	}
}

func TestCheckpointFits(t *testing.T) {
	table := Table{Samples: []uint32{40, 60}, ShardFirst: []int{0}}
	p := aCheckpoint().Params
	plan := mustPlan(t, table, p)
	fits := func(change func(*Params, *Table, *string)) error {
		p, tb, digest := p, table, "test"
		change(&p, &tb, &digest)
		other, err := New(tb, digest, p)
		if err != nil {
			t.Fatal(err)
		}
		c, err := other.Checkpoint(1, 17)
		if err != nil {
			t.Fatal(err)
		}
		c.GlobalBatch, c.Tables = 7, "elsewhere"
		return c.Fits(plan)
	}
	if err := fits(func(*Params, *Table, *string) {}); err != nil {
		t.Error(err)
	}
	for field, change := range map[string]func(*Params, *Table, *string){
		"digest":   func(_ *Params, _ *Table, d *string) { *d = "other" },
		"N":        func(_ *Params, t *Table, _ *string) { t.Samples = []uint32{40, 61} },
		"seed":     func(p *Params, _ *Table, _ *string) { p.Seed = 1 },
		"shuffle":  func(p *Params, _ *Table, _ *string) { p.Shuffle, p.Delay, p.Head = false, 1, 1 },
		"V":        func(p *Params, _ *Table, _ *string) { p.Lanes = 95 },
		"E":        func(p *Params, _ *Table, _ *string) { p.RunBlocks = 0 },
		"W":        func(p *Params, _ *Table, _ *string) { p.Delay = 17 },
		"H":        func(p *Params, _ *Table, _ *string) { p.Head = 5 },
		"T":        func(p *Params, _ *Table, _ *string) { p.MixBlock = 11 },
		"affinity": func(p *Params, _ *Table, _ *string) { p.Affinity = AffinityRun },
		"tail":     func(p *Params, _ *Table, _ *string) { p.Tail = TailPad },
	} {
		err := fits(change)
		var m *MismatchError
		if !errors.As(err, &m) || m.Field != field || !errors.Is(err, ErrMismatch) || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	if c, err := plan.Checkpoint(4, 100); err != nil || c.Epoch != 5 || c.Position != 0 {
		t.Errorf("checkpoint at N: %+v, %v", c, err)
	}
	if _, err := plan.Checkpoint(4, 101); err == nil {
		t.Error("checkpoint past N: accepted")
	}
	bad := aCheckpoint()
	bad.Tables = strings.Repeat("t", maxName+1)
	if _, err := AppendCheckpoint(nil, bad); err == nil {
		t.Error("a long name: accepted")
	}
}

func FuzzDecodeCheckpoint(f *testing.F) {
	f.Add(encode(f, aCheckpoint()))
	f.Add([]byte(`{"version":1,"algorithm":"lane-delay/1","sources":[{}]}`))
	f.Add([]byte(`{"version":2}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := DecodeCheckpoint(text)
		if err != nil {
			return
		}
		again, err := AppendCheckpoint(nil, c)
		if err != nil || len(again) > MaxCheckpoint {
			t.Fatalf("%q decodes and does not encode: %d bytes, %v", text, len(again), err)
		}
		if d, err := DecodeCheckpoint(again); err != nil || !sameCheckpoint(c, d) {
			t.Fatalf("%q: %v", again, err)
		}
	})
}
