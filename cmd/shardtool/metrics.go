package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/metrics"
)

// statsFlags are those of commands that stream, for people and programs that watch.
type statsFlags struct {
	addr  string
	every time.Duration
}

func (f *statsFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.addr, "metrics", "", "serve metrics for Prometheus at this address, as in :9400 (this host only, unless it names a host: 0.0.0.0:9400)")
	cmd.Flags().DurationVar(&f.every, "stats-every", 0, "say on stderr, so often, how fast it goes and what it waits for (0: never)")
}

// said tells whether anything was asked for.
func (f *statsFlags) said() bool { return f.addr != "" || f.every != 0 }

// fill puts the log into a stream's options.
func (f *statsFlags) fill(o *reader.StreamOptions, stderr io.Writer) error {
	if f.every < 0 {
		return usagef("--stats-every %v: give a time such as 30s", f.every)
	}
	if f.every > 0 {
		o.Log, o.StatsEvery = slog.New(slog.NewTextHandler(stderr, nil)), f.every
	}
	return nil
}

// watch serves a stream's metrics until the function that it returns is called.
func (f *statsFlags) watch(ctx context.Context, stderr io.Writer, s *reader.Stream, rank int) (stop func(), err error) {
	if f.addr == "" {
		return func() {}, nil
	}
	host, port, err := net.SplitHostPort(f.addr)
	if err != nil {
		return nil, usagef("--metrics %q: write an address such as :9400 or 0.0.0.0:9400", f.addr)
	}
	if host == "" { // nobody else sees it who was not meant to
		host = "127.0.0.1"
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, usagef("--metrics %s: %w", f.addr, err)
	}
	c := metrics.New()
	c.Watch(s, rank)
	registry := prometheus.NewRegistry()
	registry.MustRegister(c, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, WriteTimeout: 30 * time.Second}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			fmt.Fprintf(stderr, "shardtool: metrics are not served any more: %v\n", err)
		}
	}()
	fmt.Fprintf(stderr, "metrics at http://%s/metrics\n", listener.Addr())
	return func() {
		server.Close()
		<-done
	}, nil
}
