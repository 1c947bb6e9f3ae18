package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/shardtool/shardtool/cmd/shardtool/internal/receive"
	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/address"
	"github.com/shardtool/shardtool/writer"
)

// layerReply describes a layer in parts: its shards from First on begin at the samples At, and end
// with the last of them.
type layerReply struct {
	First   int      `json:"first"`
	At      []uint64 `json:"at"`
	Missing []int    `json:"missing"`
	// Types are the types of the fields of the shards that are there.
	Types map[string]string `json:"types"`
}

// layer writes a layer from rows that the parent sends.
func (r *receiver) layer(ctx context.Context, in io.Reader, dataset string, base objstore.Store) error {
	l := r.begin.Layer
	addr, err := address.Layer(dataset, l.Name)
	if err != nil {
		return usage(err)
	}
	store, err := wholeDataset(ctx, "a layer", addr)
	if err != nil {
		return err
	}
	r.opt.SourceOptions = l.Options
	opt := writer.LayerOptions{Pack: r.opt, Replaces: l.Replaces, AllowMissing: l.AllowMiss, SkipUnknown: l.SkipUnknown, LargeBlocks: l.LargeBlocks}
	opt.Pack.Layout = writer.LayoutAuto
	if l.Parts {
		return r.layerParts(ctx, in, store, base, opt)
	}
	if l.Update {
		opt.Pack.Mode = writer.ModeOverwrite
		before, done, err := rowsBefore(ctx, store, &r.opt)
		if err != nil {
			return err
		}
		defer done()
		opt.Before = before
	}
	src := receive.New(r.begin, in, nil, func(at receive.Place) error {
		r.ready = true
		return r.out.Encode(reply{Kind: "ready", At: &at})
	})
	src.Asked = func() error { return r.out.Encode(reply{Kind: "state"}) }
	defer src.Close()
	sweep(ctx, store)
	res, err := writer.AddLayer(ctx, store, base, src, opt)
	if err != nil {
		return r.layerError(err)
	}
	if !r.ready { // an equal run had published
		if err := r.out.Encode(reply{Kind: "ready", At: &receive.Place{Samples: int64(res.Samples)}, Done: true}); err != nil {
			return err
		}
	}
	out := publishedReply(store, &res.Result)
	out.Missing, out.Unknown, out.Removed = res.Missing, res.Unknown, res.Removed
	return r.out.Encode(reply{Kind: "result", Result: out})
}

// layerParts writes shards of a layer, until the parent leaves.
func (r *receiver) layerParts(ctx context.Context, in io.Reader, store, base objstore.Store, opt writer.LayerOptions) error {
	shards := receive.NewShards(r.begin, in)
	begin := func() (*writer.PartsReport, func(writer.Splitter) writer.Splitter, error) {
		return writer.LayerParts(ctx, store, base, shards.Rows(nil), opt)
	}
	left, of, err := begin()
	if err != nil {
		return r.layerError(err)
	}
	said := &layerReply{First: left.First, At: left.At, Missing: []int{}, Types: left.Types}
	for _, part := range left.Missing {
		said.Missing = append(said.Missing, left.First+part)
	}
	if err := r.out.Encode(reply{Kind: "layer", Done: left.Published, Layer: said}); err != nil {
		return err
	}
	var work errgroup.Group
	work.SetLimit(2) // a shard is put while the rows of the next one arrive
	var failed atomic.Pointer[error]
	for {
		shard, commit, err := shards.Next()
		if before := failed.Load(); before != nil {
			err = *before
		}
		switch {
		case errors.Is(err, io.EOF):
			return r.layerError(work.Wait())
		case err != nil:
			return r.layerError(err)
		case commit:
			if err = work.Wait(); err == nil {
				left, _, err = begin()
			}
			if err == nil {
				err = r.commitLayer(ctx, store, base, left)
			}
		default:
			ended := make(chan struct{})
			end := sync.OnceFunc(func() { close(ended) })
			work.Go(func() error {
				err := r.layerShard(ctx, store, shards, of, end, shard-left.First, left.Parts)
				if err != nil {
					failed.CompareAndSwap(nil, &err)
				}
				end()
				return err
			})
			<-ended
		}
		if err != nil {
			return r.layerError(err)
		}
	}
}

// layerShard writes the shard whose rows the parent sends. It calls end when it has read all of them.
func (r *receiver) layerShard(ctx context.Context, store objstore.Store, shards *receive.Shards, of func(writer.Splitter) writer.Splitter, end func(), part, parts int) error {
	asked := false
	rows := shards.Rows(func(at receive.Place) error {
		asked = true
		return r.out.Encode(reply{Kind: "ready", At: &at})
	})
	rows.Ended = end
	defer rows.Close()
	src := of(rows)
	defer src.Close()
	done, err := writer.PackPart(ctx, store, src, part, parts, r.opt)
	if err != nil {
		return err
	}
	if !asked { // it is there
		return r.out.Encode(reply{Kind: "ready", Done: true})
	}
	return r.out.Encode(reply{Kind: "result", Result: &receiveResult{
		Samples: done.Samples, Shards: done.Shards, Bytes: done.Bytes, PayloadBytes: done.PayloadBytes, Written: done.Written, Resumed: done.Adopted,
	}})
}

// commitLayer publishes the layer if all of its shards are there.
func (r *receiver) commitLayer(ctx context.Context, store, base objstore.Store, left *writer.PartsReport) error {
	if len(left.Missing) > 0 {
		return r.out.Encode(reply{Kind: "result", Result: &receiveResult{Dataset: store.String()}})
	}
	res, err := writer.Commit(ctx, store, writer.CommitOptions{Name: left.Name, Parts: left.Parts, Base: base, Memory: r.opt.Memory})
	if err != nil {
		return err
	}
	return r.out.Encode(reply{Kind: "result", Result: publishedReply(store, res)})
}

// layerError says in terms of Python what to do.
func (r *receiver) layerError(err error) error {
	switch {
	case errors.Is(err, writer.ErrExists):
		return fmt.Errorf("%w: on_exists='overwrite' replaces it, and on_exists='append' adds the shards that the data set has got since", err)
	case errors.Is(err, writer.ErrMissingRow):
		return fmt.Errorf("%w with missing='allow'", err)
	case errors.Is(err, writer.ErrUnknownKey):
		if row, ok := errors.AsType[*writer.SampleError](err); ok {
			row.Err = fmt.Errorf("%w: correct it, or leave such rows out with unknown='skip'", row.Err)
		}
	}
	return err
}

// publishedReply describes the generation that was published.
func publishedReply(store objstore.Store, res *writer.Result) *receiveResult {
	return &receiveResult{
		Dataset: store.String(), Published: true, Generation: res.Generation, Tables: res.Tables, Digest: format.DigestString(res.Digest),
		Samples: res.Samples, Shards: res.Shards, Bytes: res.Bytes, PayloadBytes: res.PayloadBytes, Written: res.Written, Resumed: res.Adopted,
	}
}
