package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/shardtool/shardtool/ingest"
)

// readSource is the program that reads one source as pack does, and drops what it has read: what
// differs between the kinds of sources, without the shards. python/tests/native_rate.py compares
// its rate with other libraries. It prints the samples, the bytes of their fields and the seconds.
func readSource() {
	samples, size, began := 0, int64(0), time.Now()
	err := func() error {
		ctx := context.Background()
		in, err := ingest.Open(ctx, os.Args[1:2], ingest.Options{})
		if err != nil {
			return err
		}
		defer in.Close()
		src := in.Source
		var buf []byte
		for {
			s, err := src.Next(ctx)
			if errors.Is(err, io.EOF) {
				return nil
			}
			for _, field := range s.Fields {
				if field.Payload == nil {
					size += int64(len(field.Data))
				} else if err == nil {
					buf = slices.Grow(buf[:0], int(field.Size))[:field.Size]
					err = field.Payload.ReadInto(ctx, buf)
					size += field.Size
				}
			}
			if err != nil {
				return err
			}
			samples++
		}
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(exitFailed)
	}
	fmt.Println(samples, size, time.Since(began).Seconds())
	os.Exit(0)
}
