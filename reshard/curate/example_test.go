package curate_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reshard/curate"
	"github.com/shardtool/shardtool/writer"
)

// packed is a data set of ten samples, of which seven are cats.
func packed(ctx context.Context) *mem.Store {
	store := mem.New()
	w, err := writer.New(ctx, store, writer.Options{Name: "pets"})
	if err != nil {
		log.Fatal(err)
	}
	for i := range 10 {
		label := "cat"
		if i > 6 {
			label = "dog"
		}
		err := w.Write(ctx, writer.Sample{
			Key: fmt.Sprint("pet", i), Fields: []writer.Field{{Name: "txt", Data: []byte(label)}},
			Attrs: []format.AttrValue{{Attribute: format.Attribute{Name: "label", Kind: format.AttrLabel}, Label: label}},
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	if _, err := w.Close(ctx); err != nil {
		log.Fatal(err)
	}
	return store
}

// A view in which both labels are equally frequent is stored with a name, and read by it.
func Example() {
	ctx := context.Background()
	store := packed(ctx)
	ds, err := reader.Open(ctx, store, reader.Options{})
	if err != nil {
		log.Fatal(err)
	}
	v, r, err := curate.Make(ctx, ds, curate.Spec{Balance: "label", Draws: 20})
	if err != nil {
		log.Fatal(err)
	}
	err = writer.PutView(ctx, store, v, writer.ViewName{Name: "even", Samples: r.Samples, Tables: ds.Info().Tables})
	if err := errors.Join(err, ds.Close()); err != nil {
		log.Fatal(err)
	}

	even, err := reader.Open(ctx, store, reader.Options{View: "even"})
	if err != nil {
		log.Fatal(err)
	}
	defer even.Close()
	s, err := even.Stream(ctx, reader.StreamOptions{Shuffle: true, Seed: 7, Epochs: 1, GlobalBatch: 5})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	counts := map[string]int{}
	for batch, err := range s.Batches(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		for i := range batch.Samples {
			label, _ := batch.Samples[i].Field("txt")
			counts[string(label)]++
		}
	}
	fmt.Println(counts)
	// Output: map[cat:10 dog:10]
}
