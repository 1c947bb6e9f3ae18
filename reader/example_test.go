package reader_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log"

	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/order"
	"github.com/shardtool/shardtool/writer"
)

// pack writes n samples into a store in memory.
func pack(ctx context.Context, n int) *mem.Store {
	store := mem.New()
	w, err := writer.New(ctx, store, writer.Options{Name: "train", BlockSize: 4 << 10, ShardSize: 64 << 10})
	if err != nil {
		log.Fatal(err)
	}
	defer w.Abort() // does nothing after Close
	for i := range n {
		err := w.Write(ctx, writer.Sample{
			Key:    fmt.Sprintf("text/%04d", i),
			Fields: []writer.Field{{Name: "txt", Data: fmt.Appendf(nil, "document %d", i)}},
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	if _, err := w.Close(ctx); err != nil { // publishes
		log.Fatal(err)
	}
	return store
}

// Packing samples that are in memory, and reading one back by its key.
func Example() {
	ctx := context.Background()
	ds, err := reader.Open(ctx, pack(ctx, 100), reader.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer ds.Close()
	numbers, err := ds.Lookup(ctx, "text/0042")
	if err != nil {
		log.Fatal(err)
	}
	s, err := ds.Get(ctx, numbers[0])
	if err != nil {
		log.Fatal(err)
	}
	text, _ := s.Field("txt")
	fmt.Printf("%d samples; %s is %q\n", ds.NumSamples(), s.Key, text)
	// Output: 100 samples; text/0042 is "document 42"
}

// Stacked data as arrays: a batch of embeddings, one row after another.
func ExampleBatch_Rows() {
	ctx := context.Background()
	store := mem.New()
	w, err := writer.New(ctx, store, writer.Options{Layout: writer.LayoutStacked})
	if err != nil {
		log.Fatal(err)
	}
	defer w.Abort()
	for i := range 10 {
		var file bytes.Buffer // an NPY file: a header of 64 or 128 bytes, then the numbers
		header := "{'descr': '<u2', 'fortran_order': False, 'shape': (3,), }"
		fmt.Fprintf(&file, "\x93NUMPY\x01\x00%c\x00%-117s\n", 118, header)
		for k := range 3 {
			_ = binary.Write(&file, binary.LittleEndian, uint16(10*i+k))
		}
		if err := w.Write(ctx, writer.Sample{Key: fmt.Sprint(i), Fields: []writer.Field{{Name: "e.npy", Data: file.Bytes()}}}); err != nil {
			log.Fatal(err)
		}
	}
	if _, err := w.Close(ctx); err != nil {
		log.Fatal(err)
	}
	ds, err := reader.Open(ctx, store, reader.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer ds.Close()
	s, err := ds.Stream(ctx, reader.StreamOptions{
		GlobalBatch: 4, Epochs: 1, Rows: true,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	b, err := s.Next(ctx)
	if err != nil {
		log.Fatal(err)
	}
	data, stride := b.Rows("e.npy")
	fmt.Printf("%d rows of %d bytes; row 2 is sample %d: %v\n", b.Len(), stride, b.Ref(2).Number, data[2*stride:3*stride])
	// Output: 4 rows of 6 bytes; row 2 is sample 2: [20 0 21 0 22 0]
}

// One rank of a training job: shuffled batches, in an order that a seed decides.
func ExampleDataset_Stream() {
	ctx := context.Background()
	ds, err := reader.Open(ctx, pack(ctx, 1000), reader.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer ds.Close()
	s, err := ds.Stream(ctx, reader.StreamOptions{
		Shuffle: true, Seed: 7, Epochs: 1, GlobalBatch: 256, Rank: 1, World: 4, Tail: order.TailShort,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	steps, samples := 0, 0
	for b, err := range s.Batches(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		steps++
		samples += len(b.Samples) // views, valid until the next step; Clone keeps one longer
	}
	fmt.Println(steps, "steps,", samples, "samples on this rank")
	// Output: 4 steps, 250 samples on this rank
}

// A job that is preempted and resumes on another number of ranks.
func ExampleStream_Checkpoint() {
	ctx := context.Background()
	ds, err := reader.Open(ctx, pack(ctx, 1000), reader.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer ds.Close()
	seen := map[uint64]int{}

	// Two ranks take three steps, then the job is preempted. Any rank's checkpoint restores all.
	var saved []byte
	for rank := range 2 {
		s, err := ds.Stream(ctx, reader.StreamOptions{Shuffle: true, Seed: 7, Epochs: 1, GlobalBatch: 100, Rank: rank, World: 2, Tail: order.TailShort})
		if err != nil {
			log.Fatal(err)
		}
		for range 3 {
			b, err := s.Next(ctx)
			if err != nil {
				log.Fatal(err)
			}
			for i := range b.Samples {
				seen[b.Samples[i].Number]++
			}
		}
		cp, err := s.Checkpoint()
		if err != nil {
			log.Fatal(err)
		}
		if saved, err = cp.Append(nil); err != nil {
			log.Fatal(err)
		}
		s.Close()
	}

	// Three ranks continue.
	cp, err := reader.DecodeCheckpoint(saved)
	if err != nil {
		log.Fatal(err)
	}
	for rank := range 3 {
		s, err := ds.Stream(ctx, reader.StreamOptions{Checkpoint: &cp, Epochs: 1, Rank: rank, World: 3})
		if err != nil {
			log.Fatal(err)
		}
		for {
			b, err := s.Next(ctx)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				log.Fatal(err)
			}
			for i := range b.Samples {
				seen[b.Samples[i].Number]++
			}
		}
		s.Close()
	}
	again := 0
	for _, n := range seen {
		if n != 1 {
			again++
		}
	}
	fmt.Println(len(seen), "samples seen,", again, "more than once")
	// Output: 1000 samples seen, 0 more than once
}
