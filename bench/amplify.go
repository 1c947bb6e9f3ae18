package main

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/shardtool/shardtool/bench/table"
)

// amplifyRuns is how often each case runs: the largest figure counts.
const amplifyRuns = 10

// counted serves a folder over HTTP, each answer after a delay, and counts the bytes.
type counted struct {
	handler http.Handler
	delay   time.Duration
	bytes   atomic.Int64
}

func (c *counted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	time.Sleep(c.delay)
	c.handler.ServeHTTP(&countedWriter{w, c}, r)
}

type countedWriter struct {
	http.ResponseWriter
	server *counted
}

func (w *countedWriter) Write(p []byte) (int, error) {
	w.server.bytes.Add(int64(len(p)))
	return w.ResponseWriter.Write(p)
}

// amplification measures how often processes of one host that share a cache fetch each byte.
func (b *bench) amplification() error {
	bin, err := b.binary()
	if err != nil {
		return err
	}
	dir, err := b.dataset("text", false)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	served := &counted{handler: http.FileServer(http.Dir(dir)), delay: 20 * time.Millisecond}
	server := &http.Server{Handler: served}
	go func() { _ = server.Serve(listener) }()
	defer server.Close()
	// read runs processes that read epochs of the data set, and returns the bytes they fetched.
	read := func(processes, world, epochs int, flags ...string) (float64, error) {
		before := served.bytes.Load()
		var group errgroup.Group
		for i := range processes {
			args := append([]string{"cat", "http://" + listener.Addr().String(), "--shuffle", "--quiet", "--workers",
				"1",
				"--rank", fmt.Sprint(i % world), "--world-size", fmt.Sprint(world), "--epochs", fmt.Sprint(epochs)},
				flags...)
			group.Go(func() error {
				var errs bytes.Buffer
				cmd := exec.CommandContext(b.ctx, bin, args...)
				cmd.Stderr = &errs
				if err := cmd.Run(); err != nil {
					return fmt.Errorf("%v: %w: %s", args, err, errs.String())
				}
				if errs.Len() > 0 {
					fmt.Fprint(os.Stderr, errs.String())
				}
				return nil
			})
		}
		err := group.Wait()
		return float64(served.bytes.Load() - before), err
	}
	once, err := read(1, 1, 1)
	if err != nil {
		return err
	}
	for _, c := range []struct {
		name          string
		world, epochs int
		goal          float64
	}{
		{"8 processes of one rank", 1, 1, 1.1},
		{"8 ranks, 3 epochs", 8, 3, 1.05},
	} {
		var factors table.Sample
		for range amplifyRuns {
			folder := filepath.Join(b.dir, "cache")
			n, err := read(8, c.world, c.epochs, "--cache", folder)
			if err != nil {
				return err
			}
			factors = append(factors, n/once)
			if err := os.RemoveAll(folder); err != nil {
				return err
			}
		}
		b.AtMost("cache", "bytes fetched through a shared cache / bytes once: "+c.name, factors, "x", c.goal,
			fmt.Sprintf("%d runs: %.3g, %.0f MB once", len(factors), factors, once/1e6))
	}
	return nil
}
