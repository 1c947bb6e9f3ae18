package mixfile_test

import (
	"context"
	"fmt"
	"log"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/mixfile"
	"github.com/shardtool/shardtool/writer"
)

// A mix of which half of the tokens are code, planned from its file, and what 100 steps of it give.
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
	file.Order.Seed, file.Order.Shuffle, file.Order.GlobalBatch = 7, true, 8
	sources, err := reader.OpenSources(ctx, *file, open(stores), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer sources.Close()
	run, err := sources.Resolve(ctx, *file, nil, reader.Change{}, reader.Planning{})
	if err != nil {
		log.Fatal(err)
	}
	defer run.Close()
	stream, err := run.Stream(ctx, reader.StreamOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer stream.Close()
	given := map[string]int{}
	for range 100 {
		batch, err := stream.Next(ctx)
		if err != nil {
			log.Fatal(err)
		}
		for i := range batch.Samples {
			given[batch.Samples[i].Source()]++
		}
	}
	fmt.Printf("code: %d samples, web: %d\n", given["code"], given["web"])
	// Output:
	// code: 160 samples, web: 640
}

// open opens data sets where a mix file says they are.
func open(stores map[string]objstore.Store) reader.Opener {
	return func(ctx context.Context, s *reader.SourceSpec, tables string) (*reader.Dataset, error) {
		return reader.OpenResumed(ctx, stores[s.Data], reader.Options{}, tables)
	}
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
func ExampleParse_packed() {
	ctx := context.Background()
	stores := map[string]objstore.Store{"/data/web": documents(ctx, 100, 50), "/data/code": documents(ctx, 40, 200)}
	file, err := mixfile.Parse("mix.yaml", []byte("sources: {web: {data: /data/web, weight: 1}, code: {data: /data/code, weight: 1}}"))
	if err != nil {
		log.Fatal(err)
	}
	file.Order.Seed, file.Order.Shuffle, file.Order.GlobalBatch = 7, true, 4
	file.Units.Kind, file.Units.Size, file.Units.Long, file.Units.By = "pack", 512, "split", "tokens"
	sources, err := reader.OpenSources(ctx, *file, open(stores), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer sources.Close()
	run, err := sources.Resolve(ctx, *file, nil, reader.Change{}, reader.Planning{})
	if err != nil {
		log.Fatal(err)
	}
	defer run.Close()
	stream, err := run.Stream(ctx, reader.StreamOptions{})
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
