package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/hint"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/metrics"
)

// statsFlags are the flags of commands that stream which publish statistics.
type statsFlags struct {
	addr  string
	every time.Duration
}

func (f *statsFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.addr, "metrics", "",
		"serve metrics for Prometheus at this address, as in :9400 (this host only, unless it names a host: 0.0.0.0:9400)")
	cmd.Flags().DurationVar(&f.every, "stats-every", 0,
		"log the rate and the causes of waits to stderr at this interval (0: never)")
	titled(cmd, "Metrics")
}

// said reports whether the user gave one of the flags.
func (f *statsFlags) said() bool { return f.addr != "" || f.every != 0 }

// fill adds the log to a stream's options.
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
	m, err := serveMetrics(ctx, f.addr, 1, stderr)
	if err != nil {
		return nil, err
	}
	m.Watch(s, rank)
	fmt.Fprintf(stderr, "metrics at %s\n", m.url)
	return m.stop, nil
}

// listenMetrics listens at an address, on the loopback interface unless the address names a host.
// If the port is in use it tries the following ones, up to this many in all, so that the processes
// of a host can be given the same address.
func listenMetrics(ctx context.Context, addr string, ports int) (net.Listener, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, metricsError(strconv.Quote(addr), errors.New("write an address such as :9400 or 0.0.0.0:9400"))
	}
	host = cmp.Or(host, "127.0.0.1") // not visible from other hosts
	first, err := net.DefaultResolver.LookupPort(ctx, "tcp", port)
	if err != nil {
		return nil, metricsError(addr, err)
	}
	for n := first; ; n++ {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(n)))
		switch {
		case err == nil:
			return listener, nil
		case !errors.Is(err, syscall.EADDRINUSE) || first == 0 || ports == 1:
			return nil, metricsError(addr, err)
		case n == first+ports-1 || n == 1<<16-1:
			return nil, metricsError(addr, fmt.Errorf("all ports from %d to %d are in use: give another, or 0 for any",
				first, n))
		}
	}
}

// meter serves the metrics of a collector at a URL until stop is called.
type meter struct {
	*metrics.Collector
	url  string
	stop func()
}

// serveMetrics returns a meter that listens as listenMetrics does.
func serveMetrics(ctx context.Context, addr string, ports int, stderr io.Writer) (*meter, error) {
	listener, err := listenMetrics(ctx, addr, ports)
	if err != nil {
		return nil, err
	}
	c, registry := metrics.New(), prometheus.NewRegistry()
	registry.MustRegister(c, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
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
	return &meter{c, "http://" + listener.Addr().String() + "/metrics", func() {
		server.Close()
		<-done
	}}, nil
}

// metricsError is an error of the address of metrics.
func metricsError(addr string, err error) error {
	return optionError(&hint.OptionError{Option: "metrics", Value: addr, Err: err})
}
