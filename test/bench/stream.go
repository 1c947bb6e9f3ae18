package main

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"time"

	"github.com/shardtool/shardtool/bench/corpus"
	"github.com/shardtool/shardtool/bench/table"
	"github.com/shardtool/shardtool/objstore"
	s3store "github.com/shardtool/shardtool/objstore/s3"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/writer"
)

// epochs is the number of epochs streamed, so that the change of epochs counts too.
const epochs = 2

// shuffled is the order of a stream, with the memory of a training host.
var shuffled = reader.StreamOptions{Shuffle: true, Seed: 1, GlobalBatch: 64, Epochs: epochs, Tail: "short",
	Order: reader.OrderOptions{ShuffleMemory: 64 << 20}}

// stream measures shuffled streaming over the throttled network, as fast as possible, and for a
// consumer that needs 80 % of the total rate.
func (b *bench) stream() error {
	if err := b.distant(); err != nil {
		return err
	}
	var share, waits table.Sample
	var batches int
	var came, delivered int64
	for range b.times {
		b.proxy.ResetCounts()
		store, err := b.far()
		if err != nil {
			return err
		}
		free, err := b.consume(store, 0)
		if err != nil {
			return err
		}
		share = append(share, float64(free.bytes)/free.seconds/float64(b.total))
		came, delivered = b.proxy.Counts().Methods[http.MethodGet].Down, free.bytes
		if store, err = b.far(); err != nil {
			return err
		}
		paced, err := b.consume(store, 0.8*float64(b.total))
		if err != nil {
			return err
		}
		waits = append(waits, paced.waited/paced.seconds)
		batches = paced.batches
	}
	b.Info("stream", "shuffled, 100 KB a sample, verified / cap", share, "x",
		fmt.Sprintf("%s; opening and the first batch included, %d epochs; %d MB came for %d MB delivered",
			mbs(share.Median()*float64(b.total)), epochs, came/1e6, delivered/1e6))
	b.AtMost("stream", "wait share of a consumer that needs 80 % of the cap", waits, "", 0.02,
		fmt.Sprintf("after the first of %d batches, through an epoch's turn", batches))
	return nil
}

const streamPrefix = "stream"

// distant puts the data set of the streams on the server, behind the throttled network.
func (b *bench) distant() error {
	if err := b.pack(); err != nil {
		return err
	}
	return b.proxy.Set(b.network())
}

// far opens the store of that data set.
func (b *bench) far() (objstore.Store, error) {
	return s3store.New(b.ctx, b.server.Bucket, streamPrefix, s3store.Options{Endpoint: b.proxy.URL,
		Region: b.server.Region, ReadOptions: objstore.ReadOptions{Concurrency: b.inFlight}})
}

// pack writes the data set directly to the server: incompressible samples, as many as are read in
// one measurement over all epochs.
func (b *bench) pack() error {
	if b.packed {
		return nil
	}
	store, err := s3store.New(b.ctx, b.server.Bucket, streamPrefix, s3store.Options{Endpoint: b.server.Endpoint,
		Region: b.server.Region})
	if err != nil {
		return err
	}
	err = b.packTo(store, corpus.Images(corpus.Options{Samples: (b.mib << 20) / 100_000, Seed: 2}))
	b.packed = err == nil
	return err
}

// packTo packs samples.
func (b *bench) packTo(store objstore.Store, samples iter.Seq[corpus.Sample]) error {
	w, err := writer.New(b.ctx, store, writer.Options{})
	if err != nil {
		return err
	}
	defer w.Abort()
	for s := range samples {
		out := writer.Sample{Key: s.Key}
		for _, f := range s.Fields {
			out.Fields = append(out.Fields, writer.Field{Name: f.Name, Data: f.Data})
		}
		if err := w.Write(b.ctx, out); err != nil {
			return err
		}
	}
	_, err = w.Close(b.ctx)
	return err
}

// consumed is what a consumer measured.
type consumed struct {
	batches int
	bytes   int64
	seconds float64 // all of it, or with a rate since the first batch
	waited  float64 // in Next, after the first batch
}

// consume streams from a store that was just opened, to the end. With a rate, the consumer works on
// every batch for the time that its bytes take at that rate.
func (b *bench) consume(store objstore.Store, rate float64) (c consumed, err error) {
	begin := time.Now()
	ds, err := reader.Open(b.ctx, store, reader.Options{})
	if err != nil {
		return c, err
	}
	defer ds.Close()
	s, err := ds.Stream(b.ctx, shuffled)
	if err != nil {
		return c, err
	}
	defer s.Close()
	for {
		asked := time.Now()
		batch, err := s.Next(b.ctx)
		if errors.Is(err, io.EOF) {
			c.seconds = time.Since(begin).Seconds()
			return c, nil
		}
		if err != nil {
			return c, err
		}
		if c.batches++; c.batches > 1 {
			c.waited += time.Since(asked).Seconds()
		} else if rate > 0 {
			begin = time.Now()
		}
		size := int64(0)
		for i := range batch.Samples {
			for _, f := range batch.Samples[i].Fields {
				size += int64(len(f.Data))
			}
		}
		c.bytes += size
		if rate > 0 {
			time.Sleep(time.Duration(float64(size) / rate * float64(time.Second)))
		}
	}
}
