package serve

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/mix"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/order"
	"github.com/shardtool/shardtool/writer"
)

// twoSources is a mix of two data sets. Only samples of "b" have the field "more".
func twoSources(t *testing.T) (reader.Mix, *Mix) {
	t.Helper()
	m := mix.Mix{Seed: 7, Shuffle: true, Tail: order.TailWrap, Epoch: 90, Segments: []mix.Segment{{Weights: []uint64{2, 1}}}}
	about := &Mix{Epoch: m.Epoch, End: 1 << 63}
	var sets []*reader.Dataset
	for _, name := range []string{"a", "b"} {
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
		sets, about.Sources = append(sets, ds), append(about.Sources, Source{name, ds})
		m.Sources = append(m.Sources, mix.Source{
			Name: name, Digest: format.DigestString(ds.Digest()), Units: ds.NumSamples(), Lanes: 4, RunBlocks: 1, Delay: 3, Head: 2, Affinity: order.AffinityEpoch,
		})
	}
	plan, err := mix.New(m)
	if err != nil {
		t.Fatal(err)
	}
	return reader.Mix{Plan: plan, Sets: sets}, about
}

// TestMix compares the batches of a mix with those of the reader. INFO sums the sources, the
// account counts by source, an error names its source, and samples cannot be got by number.
func TestMix(t *testing.T) {
	m, about := twoSources(t)
	o := reader.StreamOptions{Order: reader.Order{GlobalBatch: 16, Epochs: 2}, Read: reader.Read{Expect: []string{"txt", "more?"}}}
	c := talk(t, Options{
		Version: "test",
		Open: func(context.Context, *OpenRequest) (*Opened, error) {
			return &Opened{Mix: about, Close: func() {}}, nil
		},
		Stream: func(ctx context.Context, _ *Opened, _ *StartRequest, _ *Started) (*reader.Stream, error) {
			return reader.OpenMix(ctx, m, o)
		},
		Code: func(error) int { return codeFailed },
	})
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
	want, err := reader.OpenMix(t.Context(), m, o)
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
