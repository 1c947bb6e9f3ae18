package mix

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/internal/order/units"
	"github.com/shardtool/shardtool/reader/order"
)

// twoSources is a small mix with a pending segment.
func twoSources() Mix {
	source := func(name string, units uint64) Source {
		return Source{Name: name, Digest: "sha256:" + strings.Repeat("5a", 32), Tables: "manifest-0123456789abcdef.bin", Units: units,
			Lanes: 3, RunBlocks: 1, Delay: 2, Head: 1, Affinity: order.AffinityEpoch}
	}
	code, web := source("code", 15), source("web", 30)
	code.MaxEpochs = 4
	return Mix{
		Seed: 7, Shuffle: true, Tail: order.TailWrap, Epoch: 45, Sources: []Source{code, web},
		Segments: []Segment{{0, []uint64{1, 3}}, {200, []uint64{1, 1}}},
	}
}

func checkpointOf(t testing.TB, m Mix, position uint64) Checkpoint {
	t.Helper()
	c, err := mustPlan(t, m).Checkpoint(position)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func encode(t testing.TB, c Checkpoint) string {
	t.Helper()
	text, err := AppendCheckpoint(nil, c)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestCheckpointRoundTrip: a decoded checkpoint is written with the same bytes, and continues with
// the same counts.
func TestCheckpointRoundTrip(t *testing.T) {
	rnd := rand.New(rand.NewPCG(25, 26))
	for range 200 {
		w := randomWorld(rnd)
		p := mustPlan(t, w.Mix)
		position := rnd.Uint64N(min(endOf(t, p), 1000) + 1)
		c := checkpointOf(t, w.Mix, position)
		c.Steps, c.LeftOut = Steps{rnd.Uint64(), rnd.Uint64() / 2, rnd.IntN(1 << 31)}, []Range{{5, 9}, {rnd.Uint64N(1<<62) + 10, 1 << 63}}
		c.SkipHash, c.Skipped = "c8117176d1eb443a4bc106e34af19c5f", rnd.Uint64()
		text := encode(t, c)
		again, err := DecodeCheckpoint([]byte(text))
		if err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		for s := range c.Sources {
			c.Sources[s].MaxEpochs = c.Sources[s].maxEpochs()
		}
		if !reflect.DeepEqual(c, again) {
			t.Fatalf("written %+v, read %+v", c, again)
		}
		for i := range again.Sources { // units before the epoch that the checkpoint names
			for j := again.Sources[i].Base; j < again.Sources[i].First+3; j++ {
				epoch, place, _ := again.Sources[i].Place(j)
				if e, p, _ := w.Sources[i].Place(j); e != epoch || p != place {
					t.Fatalf("unit %d of %+v is %d of epoch %d, want %d of epoch %d", j, again.Sources[i], place, epoch, p, e)
				}
			}
		}
		q := mustPlan(t, again.Mix)
		for g := position; g <= min(endOf(t, p), position+50); g++ {
			want, _ := p.Counts(nil, g)
			if got, err := q.Counts(nil, g); err != nil || !reflect.DeepEqual(got, want) {
				t.Fatalf("%s: before %d: %d, %v, want %d", text, g, got, err, want)
			}
			later := checkpointOf(t, again.Mix, g)
			later.Steps, later.LeftOut, later.SkipHash, later.Skipped = again.Steps, again.LeftOut, again.SkipHash, again.Skipped
			first := checkpointOf(t, w.Mix, g)
			first.Steps, first.LeftOut, first.SkipHash, first.Skipped = again.Steps, again.LeftOut, again.SkipHash, again.Skipped
			if a, b := encode(t, later), encode(t, first); a != b {
				t.Fatalf("at %d the checkpoint depends on where it was resumed:\n%s\n%s", g, a, b)
			}
		}
	}
}

// TestCheckpointSize: the largest values there can be stay within the bound.
func TestCheckpointSize(t *testing.T) {
	for i, n := range []int{1, 2, 64, MaxSources, 1, 2, 64, MaxSources} {
		inUnits := i >= 4
		m := Mix{Seed: 1<<64 - 1, Shuffle: true, Tail: order.TailShort, Epoch: maxPosition - 1, From: maxPosition - 1}
		weights := make([]uint64, n)
		for s := range n {
			m.Sources = append(m.Sources, Source{
				Name: fmt.Sprintf("%032d", s), Digest: strings.Repeat("d", maxDigest), Tables: strings.Repeat("t", maxTables), View: strings.Repeat("f", 16), Units: maxPosition - 1,
				Lanes: maxLanes, RunBlocks: 1<<32 - 1, Delay: 1<<32 - 1, Head: 1<<32 - 1, Affinity: order.AffinityEpoch,
				MaxEpochs: maxEpochs, Epoch: maxEpochs, First: maxPosition/uint64(n) - 1, Base: maxPosition/uint64(n) - 1,
			})
			weights[s] = (maxWeights - 1) / uint64(n)
			if inUnits {
				m.Sources[s].Unit = units.Params{Kind: units.Bucket, Size: units.MaxSize, Long: units.LongTruncate, Window: units.MaxWindow, By: strings.Repeat("b", maxBy)}
				m.Sources[s].Lengths = strings.Repeat("f", maxLengths)
			}
		}
		m.Sources[0].Base += m.From - uint64(n)*(maxPosition/uint64(n)-1)
		var pairs int
		m.Segments = []Segment{{0, weights}}
		for i := range 200 {
			g := Segment{maxPosition - 1000 + uint64(i), make([]uint64, n)}
			for s := range min(n, 1+i%7) {
				g.Weights[n-1-s] = (maxWeights - 1) / 7
				pairs++
			}
			m.Segments = append(m.Segments, g)
		}
		m.From -= 2000
		m.Sources[0].Base -= 2000
		m.Sources[0].First = m.Sources[0].Base
		c := Checkpoint{Mix: m, Position: m.From, Steps: Steps{1<<64 - 1, maxPosition, 1<<31 - 1}, SkipHash: strings.Repeat("s", maxHash), Skipped: 1<<64 - 1}
		for i := range uint64(maxLeftOut) {
			c.LeftOut = append(c.LeftOut, Range{maxPosition - 100 + 2*i, maxPosition - 99 + 2*i})
		}
		text := encode(t, c)
		bound := checkpointBase + (checkpointSource+checkpointView)*n + checkpointSegment*(pairs+200)
		if inUnits {
			bound += checkpointUnits * n
		}
		if len(text) > bound {
			t.Errorf("%d sources, %d pairs: %d bytes, at most %d", n, pairs, len(text), bound)
		}
		if _, err := DecodeCheckpoint([]byte(text)); err != nil {
			t.Errorf("%d sources: %v", n, err)
		}
	}
}

// edited is a checkpoint's text with one piece replaced and a check that fits again.
func edited(t testing.TB, text, old, replacement string) string {
	t.Helper()
	if !strings.Contains(text, old) {
		t.Fatalf("no %s in %s", old, text)
	}
	plain := strings.Replace(text, old, replacement, 1)
	return withCheck(plain[:strings.LastIndex(plain, `,"check"`)] + "}")
}

// withCheck adds a check that fits.
func withCheck(plain string) string {
	return fmt.Sprintf(`%s,"check":"%08x"}`, plain[:len(plain)-1], crc32.ChecksumIEEE([]byte(plain)))
}

// TestCheckpointRefusals: the error names the member, and the source.
func TestCheckpointRefusals(t *testing.T) {
	c := checkpointOf(t, twoSources(), 100)
	c.Steps.GlobalBatch = 16
	c.LeftOut = []Range{{32, 48}}
	text := encode(t, c)
	key := fmt.Sprint(Key(7, "web"))
	for _, e := range []struct{ old, replacement, want string }{
		{`"version":2`, `"version":1`, "version 1"},
		{`"version":2`, `"version":null`, "version null"},
		{`"interleave/1"`, `"interleave/2"`, "algorithm"},
		{`"lane-delay/1"`, `"lane-delay/2"`, "order"},
		{`"seed":"7"`, `"seed":"07"`, "seed"},
		{`"seed":"7"`, `"seed":7`, "seed"},
		{`"position":100`, `"position":9223372036854775809`, "position"},
		{`"position":100`, `"position":201`, "segment at 200"},
		{`"position":100`, `"position":1e2`, "position"},
		{`"position":100,`, ``, "no position"},
		{`"shuffle":true`, `"shuffle":false`, "without shuffling"},
		{`"tail":"wrap"`, `"tail":"none"`, "tail"},
		{`"epoch_length":45`, `"epoch_length":0`, "epoch of 0"},
		{`"global_batch":16`, `"global_batch":2147483648`, "global_batch"},
		{`"global_batch":16`, `"global_batch":-1`, "global_batch"},
		{`"steps":[0,0]`, `"steps":[0]`, "steps"},
		{`"steps":[0,0]`, `"steps":[0,null]`, "steps"},
		{`"steps":[0,0]`, `"steps":[0,"0"]`, "steps"},
		{`"at":0`, `"at":1`, "begins at 0"},
		{`"from":0`, `"from":1`, "before position 1"},
		{`"fields":["name","digest"`, `"fields":["digest","name"`, "fields"},
		{`["code",`, `["web",`, `source "web": key`},
		{`["code",`, `["Code",`, `source "Code"`},
		{`"web","sha256:`, `"web","sha256:<`, `source "web": digest`},
		{`.bin","","` + key, `.bin","0123456789ABCDEF","` + key, `source "web": view`},
		{key, "1", `source "web": key`},
		{`30,3,1,2,1,"epoch"`, `30,0,1,2,1,"epoch"`, `source "web": V`},
		{`30,3,1,2,1,"epoch"`, `30,3,1,0,1,"epoch"`, `source "web": W`},
		{`30,3,1,2,1,"epoch"`, `30,3,1,2,3,"epoch"`, `source "web": H`},
		{`30,3,1,2,1,"epoch"`, `30,3,1,2,1,"lane"`, `source "web": affinity`},
		{`30,3,1,2,1,"epoch"`, `0,3,1,2,1,"epoch"`, `source "web": first`},
		{`30,3,1,2,1,"epoch"`, `9223372036854775808,3,1,2,1,"epoch"`, `source "web": N`},
		{`30,3,1,2,1,"epoch"`, `30,3,1,4294967296,1,"epoch"`, `source "web": W`},
		{`4294967296,2,60,0,3]`, `4294967297,2,60,0,3]`, `source "web": max_epochs`},
		{`4294967296,2,60,0,3]`, `0,2,60,0,3]`, `source "web": max_epochs`},
		{`4294967296,2,60,0,3]`, `4294967296,1,60,0,3]`, `source "web": first`},
		{`4294967296,2,60,0,3]`, `4294967296,2,60,1,3]`, `source "web": base`},
		{`4294967296,2,60,0,3]`, `4294967296,2,60,0,4611686018427387904]`, "2^62"},
		{`4294967296,2,60,0,3]`, `4294967296,2,60,0]`, "number 1 is not an array"},
		{`4294967296,2,60,0,3]`, `4294967296,2,60,0,null]`, `source "web": no weight`},
		{`[[200,0,1,1,1]]`, `[[200,0,1,2,1]]`, "segment at 200"},
		{`[[200,0,1,1,1]]`, `[[200,1,1,0,1]]`, "segment at 200"},
		{`[[200,0,1,1,1]]`, `[[200,0,0]]`, "segment at 200"},
		{`[[200,0,1,1,1]]`, `[[200,0]]`, "segments: number 0"},
		{`[[200,0,1,1,1]]`, `[[200,0,1],[200,0,1]]`, "segment at 200"},
		{`[[200,0,1,1,1]]`, `[200]`, "segments: number 0"},
		{`"left_out":[[32,48]]`, `"left_out":[[48,32]]`, "left_out"},
		{`"left_out":[[32,48]]`, `"left_out":[[32]]`, "left_out"},
		{`"skip_hash":""`, `"skip_hash":"\""`, "skip_hash"},
		{`"skipped":0`, `"skipped":0,"more":1`, "unknown member"},
	} {
		_, err := DecodeCheckpoint([]byte(edited(t, text, e.old, e.replacement)))
		if err == nil || errors.Is(err, order.ErrEdited) || !strings.Contains(err.Error(), e.want) {
			t.Errorf("%s for %s: %v, want %s", e.replacement, e.old, err, e.want)
		}
	}
	many := edited(t, text, `[[200,0,1,1,1]]`, "[[200,0,1]"+strings.Repeat(",[200,0,1]", MaxSegments-1)+"]")
	if _, err := DecodeCheckpoint([]byte(many)); err == nil || !strings.Contains(err.Error(), "segments: 4096 of them") {
		t.Errorf("too many segments: %v", err)
	}
	head, rest, _ := strings.Cut(text, `"sources":[`)
	row, _, _ := strings.Cut(rest, `],"segments"`)
	wide := head + `"sources":[` + row + strings.Repeat(","+row, 400) + `],"segments":[[200,0,1]` + strings.Repeat(",[200,0,1]", 2000) + `],"left_out":[],"skip_hash":"","skipped":0}`
	if _, err := DecodeCheckpoint([]byte(withCheck(wide))); err == nil || !strings.Contains(err.Error(), "segments: 2001 of 802 sources") {
		t.Errorf("too many weights: %v", err)
	}
	for _, bad := range []string{"", "{}", "[]", text[:200], text + text, strings.Replace(text, `"check"`, `"chek"`, 1), strings.Repeat(" ", maxRead+1)} {
		if _, err := DecodeCheckpoint([]byte(bad)); err == nil {
			t.Errorf("%.50q is taken", bad)
		}
	}
	got, err := DecodeCheckpoint([]byte(strings.Replace(text, `"position":100`, `"position":101`, 1)))
	if !errors.Is(err, order.ErrEdited) || got.Position != 101 {
		t.Errorf("an edited checkpoint: %v, position %d", err, got.Position)
	}
	if _, err := DecodeCheckpoint([]byte(strings.ReplaceAll(text, `,"`, ",\n \""))); err != nil {
		t.Errorf("with blanks: %v", err)
	}
}

func FuzzDecodeCheckpoint(f *testing.F) {
	c := checkpointOf(f, twoSources(), 100)
	text := encode(f, c)
	f.Add([]byte(text))
	f.Add([]byte(edited(f, text, `[[200,0,1,1,1]]`, `[[200,1,4294967296],[9223372036854775807,0,1]]`)))
	f.Add([]byte(edited(f, text, `"shuffle":true`, `"shuffle":false`)))
	steered, err := mustPlan(f, twoSources()).Steer(100, []uint64{3, 1})
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(encode(f, checkpointOf(f, steered, 120))))
	f.Add([]byte(`{"version":2,"algorithm":"interleave/1","order":"lane-delay/1"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := DecodeCheckpoint(text)
		if err != nil && !errors.Is(err, order.ErrEdited) {
			return
		}
		again := encode(t, c)
		if err == nil {
			var a, b any
			if json.Unmarshal(text, &a) != nil || json.Unmarshal([]byte(again), &b) != nil || len(again) > len(text)+64 {
				t.Fatalf("%s is written as %s", text, again)
			}
		}
		p := mustPlan(t, c.Mix)
		if counts, err := p.Counts(nil, c.Position); err == nil && sum(counts) != c.Position {
			t.Fatalf("%s: counts %d", text, counts)
		}
		_, _ = p.End()
	})
}
