package serve

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"slices"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/order"
	"github.com/shardtool/shardtool/writer"
)

// twoSources is a mix of two data sets. Only samples of "b" have the field "more".
func twoSources(t *testing.T) reader.Spec {
	t.Helper()
	spec := reader.Spec{
		Length: reader.Length{Units: 90}, Order: order.Choice{Seed: 7, Shuffle: true, Tail: order.TailWrap, Epochs: 2, GlobalBatch: 16},
	}
	for i, name := range []string{"a", "b"} {
		store := pack(t, 60, func(i int) []writer.Field {
			fields := []writer.Field{{Name: "txt", Data: []byte(strings.Repeat(name, 100+i))}}
			if name == "b" {
				fields = append([]writer.Field{{Name: "more", Data: []byte("x")}}, fields...)
			}
			return fields
		})
		ds, err := reader.Open(t.Context(), store, reader.Options{Workers: 2})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ds.Close() })
		fixed := reader.Lanes{Lanes: 4, RunBlocks: 1, Delay: 3, Head: 2}
		spec.Sources = append(spec.Sources, reader.SourceSpec{Name: name, Set: ds, Share: big.NewRat(int64(2-i), 3), Fixed: fixed})
	}
	return spec
}

// talkMix returns a client of the server of a mix, and the function by which the server opens streams,
// with the number of its calls.
func talkMix(t *testing.T, spec reader.Spec) (c *client, open func(context.Context, *reader.Checkpoint) (*reader.Stream, error), opened *int) {
	t.Helper()
	sources, err := reader.OpenSources(t.Context(), spec, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	opened = new(int)
	open = func(ctx context.Context, from *reader.Checkpoint) (*reader.Stream, error) {
		*opened++
		run, err := sources.Resolve(ctx, spec, from, reader.Change{}, reader.Planning{})
		if err != nil {
			return nil, err
		}
		return run.Stream(ctx, reader.StreamOptions{Expect: []string{"txt", "more?"}})
	}
	c = talk(t, Options{
		Version: "test",
		Open: func(context.Context, *OpenRequest) (*Opened, error) {
			return &Opened{Sources: sources, Epoch: 90, End: 1 << 63, Close: func() {}}, nil
		},
		Stream: func(ctx context.Context, _ *Opened, q *StartRequest, _ *Started) (*reader.Stream, error) {
			if q.Resume.Checkpoint == "" {
				return open(ctx, nil)
			}
			cp, err := reader.DecodeCheckpoint([]byte(q.Resume.Checkpoint))
			if err != nil {
				return nil, err
			}
			return open(ctx, &cp)
		},
		Code: func(err error) int {
			if errors.Is(err, ErrConfig) {
				return codeUsage
			}
			return codeFailed
		},
	})
	return c, open, opened
}

// TestMix compares the batches of a mix with those of the reader. INFO sums the sources, the
// account counts by source, an error names its source, and samples cannot be got by number.
func TestMix(t *testing.T) {
	spec := twoSources(t)
	c, open, _ := talkMix(t, spec)
	info := c.info()
	if info.Samples != 120 || info.EpochLength != 90 || info.End != 1<<63 || len(info.Sources) != 2 || info.Sources[1].Name != "b" || info.Sources[1].Samples != 60 {
		t.Errorf("INFO is %+v", info)
	}
	if want := []format.FieldTotal{{Name: "more", Samples: 60, Bytes: 60, Min: 1, Max: 1}, {Name: "txt", Samples: 120, Bytes: 2 * (6000 + 1770), Min: 100, Max: 159}}; !slices.Equal(info.Fields, want) {
		t.Errorf("fields %+v, want %+v", info.Fields, want)
	}
	started := c.start(1, `{"columns":[{"name":"txt","decode":"bytes"}]}`)
	if !slices.Equal(started.Sources, []string{"a", "b"}) || started.Samples != 120 || started.Tail != "wrap" {
		t.Errorf("STARTED is %+v", started)
	}
	want, err := open(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer want.Close()
	last := 0
	for number := uint64(0); ; number++ {
		b, err := want.Next(t.Context())
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		c.ask(1, number)
		g := c.batch()
		sameBatch(t, &g, b, number)
		if g.flags()&flagLast != 0 {
			last++
		}
		account := g.region[binary.LittleEndian.Uint64(g.header[104:])+136:]
		for i, of := range want.Stats().Sources {
			if samples, bytes := binary.LittleEndian.Uint64(account[16*i:]), binary.LittleEndian.Uint64(account[16*i+8:]); samples != of.Samples || bytes != of.Bytes {
				t.Fatalf("batch %d: %d samples and %d bytes of source %s, want %+v", number, samples, bytes, of.Name, of)
			}
		}
		c.release(&g.frame)
	}
	if last != 2 {
		t.Errorf("%d batches are the last of an epoch, want 2", last)
	}
	c.send(newFrame(kindGet, 0, 0).set64(8, 5).set64(16, 0), nil)
	c.wantError(kindGet, 5, "config", codeUsage)
	c.start(2, `{"columns":[{"name":"more","decode":"bytes"}]}`)
	c.ask(2, 0)
	if p := c.wantError(kindStart, 2, "decode", codeFailed); p.Source != "a" || p.Field != "more" || p.Shard == "" || !strings.HasPrefix(p.Message, `source "a": shard `) {
		t.Errorf("the error is %+v", p)
	}
	c.end()
}

// TestWeights: a START with weights goes on with the stream of the run under way, at the place of
// its checkpoint, whatever was made ahead; one that asks for something else begins another stream.
func TestWeights(t *testing.T) {
	spec := twoSources(t)
	spec.Order.Epochs = 0
	c, open, opened := talkMix(t, spec)
	c.info()
	columns := `{"columns":[{"name":"txt","decode":"bytes"}],"ring":65536` // a few batches
	c.start(1, columns+`,"tail":"wrap"}`)
	want, err := open(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer want.Close()
	at, number := "", uint64(0)
	// begin sends a START, and drops the batches that were on their way.
	begin := func(run uint64, body string) (s Started) {
		c.send(newFrame(kindStart, 0, len(body)).set64(8, run), []byte(body))
		for {
			f, text := c.next()
			if f.kind() == kindBatch {
				c.release(&f)
				continue
			}
			if err := json.Unmarshal(text, &s); err != nil || f.kind() != kindStarted {
				t.Fatalf("a frame of kind %d: %s", f.kind(), text)
			}
			return s
		}
	}
	// take compares some batches of a run with those of the reader, and notes the place.
	take := func(run uint64, n int) {
		for range n {
			b, err := want.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			c.ask(run, number)
			g := c.batch()
			sameBatch(t, &g, b, number)
			cp, err := b.Checkpoint()
			if err != nil {
				t.Fatal(err)
			}
			text, err := cp.Append(nil)
			if err != nil {
				t.Fatal(err)
			}
			at = string(text)
			c.release(&g.frame)
			number++
		}
	}
	take(1, 3)
	*opened = 0
	for run := uint64(2); run < 30; run++ {
		weights := map[string]float64{"a": float64(run), "b": 2}
		if err := want.SetWeights(weights); err != nil {
			t.Fatal(err)
		}
		started := begin(run, fmt.Sprintf(`%s,"checkpoint":%q,"weights":{"a":%d,"b":2}}`, columns, at, run))
		if !strings.Contains(started.Checkpoint, `"steered":[`) || started.End != 120<<32 {
			t.Errorf("STARTED is %+v", started)
		}
		number = 0
		take(run, 2)
	}
	if *opened != 0 {
		t.Errorf("%d streams were opened", *opened)
	}
	if err := want.SetWeights(map[string]float64{"b": 1}); err != nil {
		t.Fatal(err)
	}
	number = 0
	begin(30, fmt.Sprintf(`{"columns":[],"prefetch":0,"checkpoint":%q,"weights":{"b":1}}`, at))
	if *opened != 1 {
		t.Errorf("%d streams were opened for other columns", *opened)
	}
	c.send(newFrame(kindStart, 0, 0).set64(8, 31), nil)
	c.wantError(kindStart, 31, "config", codeUsage)
	body := fmt.Sprintf(`%s,"checkpoint":%q,"weights":{"c":1}}`, columns, at)
	c.send(newFrame(kindStart, 0, len(body)).set64(8, 32), []byte(body))
	if p := c.wantError(kindStart, 32, "config", codeUsage); !strings.Contains(p.Message, `set_weights: there is no source "c": the mix has a, b`) {
		t.Errorf("the error is %+v", p)
	}
	c.end()
}
