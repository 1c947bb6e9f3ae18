package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/feature/s3/transfermanager"
	"github.com/aws/aws-sdk-go-v2/feature/s3/transfermanager/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"golang.org/x/sync/errgroup"

	"github.com/shardtool/shardtool/objstore"
	s3store "github.com/shardtool/shardtool/objstore/s3"
)

// client reads all pieces, a number of them at a time.
type client func(all []piece) error

// parallel reads pieces in order in several goroutines, each into its own buffer.
func parallel(ctx context.Context, goroutines int, all []piece,
	read func(ctx context.Context, p piece, into []byte) error) error {
	group, ctx := errgroup.WithContext(ctx)
	var next atomic.Int64
	for range goroutines {
		group.Go(func() error {
			var buffer []byte
			for {
				i := int(next.Add(1)) - 1
				if i >= len(all) {
					return nil
				}
				if len(buffer) < all[i].size {
					buffer = make([]byte, all[i].size)
				}
				if err := read(ctx, all[i], buffer[:all[i].size]); err != nil {
					return err
				}
			}
		})
	}
	return group.Wait()
}

// ours reads with the store, which keeps all its handles open. With check it compares every byte.
func (b *bench) ours(endpoint string, check bool) (client, error) {
	store, err := s3store.New(b.ctx, b.server.Bucket, "", s3store.Options{Endpoint: endpoint, Region: b.server.Region,
		ReadOptions: objstore.ReadOptions{Concurrency: b.inFlight}})
	if err != nil {
		return nil, err
	}
	handles := make([]objstore.Object, len(b.data.keys))
	for i, key := range b.data.keys {
		if handles[i], err = store.Open(b.ctx, key); err != nil {
			return nil, err
		}
	}
	return func(all []piece) error {
		return parallel(b.ctx, b.inFlight, all, func(ctx context.Context, p piece, into []byte) error {
			if err := handles[p.object].ReadAt(ctx, into, p.off); err != nil || !check {
				return err
			}
			return b.data.check(p, into)
		})
	}, nil
}

// bare is the upper bound for a parallel client: net/http, presigned URLs, no checks but the
// status, no retries.
func (b *bench) bare(endpoint string) (client, error) {
	urls, err := b.data.presign(b.ctx, b.server, endpoint)
	if err != nil {
		return nil, err
	}
	h := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: b.inFlight, DisableCompression: true}}
	return func(all []piece) error {
		return parallel(b.ctx, b.inFlight, all, func(ctx context.Context, p piece, into []byte) error {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, urls[p.object], nil)
			if err != nil {
				return err
			}
			req.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", p.off, p.off+int64(p.size)-1))
			res, err := h.Do(req)
			if err != nil {
				return err
			}
			defer res.Body.Close()
			if res.StatusCode != http.StatusPartialContent {
				return fmt.Errorf("status %s", res.Status)
			}
			_, err = io.ReadFull(res.Body, into)
			return err
		})
	}, nil
}

// manager downloads entire objects with the SDK's transfermanager, several objects at a time, each
// with its share of the requests in flight, in parts of the pieces' size.
func (b *bench) manager(endpoint string, atOnce int) client {
	options := b.server.ClientAt(endpoint).Options()
	options.HTTPClient = awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
		t.MaxIdleConns, t.MaxIdleConnsPerHost = 0, b.inFlight
	})
	sdk := s3.New(options)
	return func(all []piece) error {
		m := transfermanager.New(sdk, func(o *transfermanager.Options) {
			o.Concurrency = b.inFlight / atOnce
			o.PartSizeBytes = int64(all[0].size)
			o.GetObjectType = types.GetObjectRanges
			o.DisableChecksumValidation = true
		})
		whole := pieces(len(all)*all[0].size>>20, objectSize)
		return parallel(b.ctx, atOnce, whole, func(ctx context.Context, p piece, into []byte) error {
			_, err := m.DownloadObject(ctx, &transfermanager.DownloadObjectInput{
				Bucket: &b.server.Bucket, Key: aws.String(b.data.keys[p.object]), WriterAt: memory(into),
			})
			return err
		})
	}
}

// memory is an io.WriterAt that cannot grow.
type memory []byte

func (m memory) WriteAt(p []byte, off int64) (int, error) {
	if off < 0 || off+int64(len(p)) > int64(len(m)) {
		return 0, io.ErrShortWrite
	}
	return copy(m[off:], p), nil
}
