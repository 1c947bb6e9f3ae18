package mixfile_test

import (
	"context"
	"fmt"
	"log"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/mem"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/mixfile"
	"github.com/shardtool/shardtool/reader/order"
	"github.com/shardtool/shardtool/reader/order/mix"
	"github.com/shardtool/shardtool/reader/order/units"
	"github.com/shardtool/shardtool/reader/simulate"
	"github.com/shardtool/shardtool/writer"
)

// A mix of which half of the tokens are code, planned from its file, and what 1,000 steps of it
// give.
func Example() {
	ctx := context.Background()
	stores := map[string]objstore.Store{"/data/web": documents(ctx, 100, 50), "/data/code": documents(ctx, 40, 200)}
	file, err := mixfile.Parse("mix.yaml", []byte(`
sources:
  web:  {data: /data/web, weight: 0.5}
  code: {data: /data/code, weight: 0.5}
count: tokens
`))
	if err != nil {
		log.Fatal(err)
	}
	var sets []*reader.Dataset
	for _, s := range file.Sources {
		d, err := reader.Open(ctx, stores[s.Data], reader.Options{})
		if err != nil {
			log.Fatal(err)
		}
		defer d.Close()
		sets = append(sets, d)
	}
	data, err := file.Describe(ctx, sets)
	if err != nil {
		log.Fatal(err)
	}
	m, err := file.Mix(data, order.Choice{Seed: 7, Shuffle: true}, nil)
	if err != nil {
		log.Fatal(err)
	}
	plan, err := mix.New(m) // for reader.OpenMix
	if err != nil {
		log.Fatal(err)
	}
	sizes := []simulate.Size{{Tokens: data[0].Tokens}, {Tokens: data[1].Tokens}}
	f, err := simulate.NewForecast(plan, mix.Steps{GlobalBatch: 8}, 0, 1000, sizes, nil)
	if err != nil {
		log.Fatal(err)
	}
	for _, s := range f.Sources {
		fmt.Printf("%s: %d samples, %.0f%% of the tokens, %.0f epochs\n", s.Name, s.Samples, 100**s.TokenShare, s.Epochs)
	}
	// Output:
	// code: 1600 samples, 50% of the tokens, 40 epochs
	// web: 6400 samples, 50% of the tokens, 64 epochs
}

// documents packs n samples of that many tokens.
func documents(ctx context.Context, n, tokens int) objstore.Store {
	store := mem.New()
	w, err := writer.New(ctx, store, writer.Options{})
	if err != nil {
		log.Fatal(err)
	}
	for i := range n {
		length := format.AttrValue{Attribute: format.Attribute{Name: "tokens", Kind: format.AttrInteger}, Integer: int64(tokens)}
		s := writer.Sample{Key: fmt.Sprint(i), Fields: []writer.Field{{Name: "txt", Data: []byte("text")}}, Attrs: []format.AttrValue{length}}
		if err := w.Write(ctx, s); err != nil {
			log.Fatal(err)
		}
	}
	if _, err := w.Close(ctx); err != nil {
		log.Fatal(err)
	}
	return store
}

// A mix whose steps are packed sequences of 512 tokens, half of the tokens code.
func ExampleFile_MakeUnits() {
	ctx := context.Background()
	stores := map[string]objstore.Store{"/data/web": documents(ctx, 100, 50), "/data/code": documents(ctx, 40, 200)}
	file, err := mixfile.Parse("mix.yaml", []byte("sources: {web: {data: /data/web, weight: 1}, code: {data: /data/code, weight: 1}}"))
	if err != nil {
		log.Fatal(err)
	}
	var sets []*reader.Dataset
	for _, s := range file.Sources {
		d, err := reader.Open(ctx, stores[s.Data], reader.Options{})
		if err != nil {
			log.Fatal(err)
		}
		defer d.Close()
		sets = append(sets, d)
	}
	data, err := file.Describe(ctx, sets)
	if err != nil {
		log.Fatal(err)
	}
	made, err := file.MakeUnits(ctx, sets, data, func(*mixfile.Source) (units.Params, reader.StreamOptions) {
		return units.Params{Kind: units.Pack, Size: 512, Long: units.LongSplit, By: "tokens"}, reader.StreamOptions{}
	})
	if err != nil {
		log.Fatal(err)
	}
	defer made.Close()
	m, err := file.Mix(data, order.Choice{Seed: 7, Shuffle: true}, nil)
	if err != nil {
		log.Fatal(err)
	}
	plan, err := mix.New(m)
	if err != nil {
		log.Fatal(err)
	}
	// The sources of a mix are in the order of their names, as those of the file.
	stream, err := reader.OpenMix(ctx, reader.Mix{Plan: plan, Sets: sets, Units: made}, reader.StreamOptions{Order: reader.Order{GlobalBatch: 4}})
	if err != nil {
		log.Fatal(err)
	}
	defer stream.Close()
	batch, err := stream.Next(ctx)
	if err != nil {
		log.Fatal(err)
	}
	tokens := map[string]uint32{}
	for i := range batch.Samples {
		tokens[batch.Samples[i].Source()] += batch.Cut(i).Length
	}
	fmt.Printf("%d sequences, %d tokens of code, %d of web\n", batch.Units, tokens["code"], tokens["web"])
	// Output:
	// 4 sequences, 800 tokens of code, 1000 of web
}
