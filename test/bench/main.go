// Command bench compares package objstore/s3 in one run with a bare parallel client of ranged GETs,
// which neither verifies nor retries, and with the SDK's transfermanager, all at equal concurrency,
// over versitygw on the loopback interface and a proxy that delays, throttles and breaks answers.
// Every figure is a ratio of measurements made in turn. The group stores has the other kinds of
// stores, with servers for tests, and the group layers what layers cost.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/shardtool/shardtool/bench/table"
	"github.com/shardtool/shardtool/test/gateway"
	"github.com/shardtool/shardtool/test/proxy"
)

// conditions apply to every throttled measurement.
type conditions struct {
	mib       int   // read in one measurement
	times     int   // measurements of a figure; the median counts
	total     int64 // bytes a second of the whole server
	perConn   int64 // of one connection
	firstByte time.Duration
	inFlight  int
	long      time.Duration // of a paced run
	rows      int           // of a layer
	python    string        // an interpreter
}

// network returns the options of a proxy for these conditions.
func (c conditions) network() proxy.Options {
	return proxy.Options{FirstByte: c.firstByte, PerConn: c.perConn, Total: c.total, Seed: 1}
}

// bench is one run.
type bench struct {
	ctx context.Context
	dir string // for the files written
	conditions
	server *gateway.Server
	proxy  *proxy.Proxy
	data   *dataset
	packed bool // the data set of the streams is on the server
	table.Table
}

var groups = []struct {
	name string
	run  func(*bench) error
}{
	{"throttled", (*bench).throttled}, {"faults", (*bench).faults}, {"loopback", (*bench).loopback}, {"stream", (*bench).stream},
	{"cache", (*bench).cached}, {"memory", (*bench).memory}, {"paced", (*bench).pacedRows},
	{"write", (*bench).write}, {"stores", (*bench).stores}, {"layers", (*bench).layers},
}

func main() {
	if did, err := uploader(); did {
		if err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	names := make([]string, len(groups))
	for i, g := range groups {
		names[i] = g.name
	}
	var c conditions
	only := flag.String("run", strings.Join(names, ","), "groups to run")
	flag.IntVar(&c.mib, "mib", 1536, "MiB read in one measurement")
	flag.IntVar(&c.times, "times", 3, "measurements of a figure; the median counts")
	flag.Int64Var(&c.total, "cap", 300, "rate of the whole server in MB/s")
	flag.Int64Var(&c.perConn, "conn", 20, "rate of one connection in MB/s")
	flag.DurationVar(&c.firstByte, "first-byte", 30*time.Millisecond, "time to the first byte of every answer")
	flag.IntVar(&c.inFlight, "in-flight", 64, "requests in flight, of every client")
	flag.DurationVar(&c.long, "long", time.Minute, "how long a paced consumer is measured")
	flag.IntVar(&c.rows, "rows", 1_000_000, "rows that the group layers adds; the goal is for 10,000,000")
	flag.StringVar(&c.python, "python", "python3", "an `interpreter` for the group layers, with numpy and pyarrow")
	dir := flag.String("dir", "", "where the server's data goes (default: the system's folder for temporary files)")
	asJSON := flag.Bool("json", false, "print as JSON")
	flag.Parse()
	c.total *= 1e6
	c.perConn *= 1e6
	if err := run(c, *only, *dir, *asJSON); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(c conditions, only, dir string, asJSON bool) (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	tmp, err := os.MkdirTemp(dir, "shardtool-bench-s3-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	b := &bench{ctx: ctx, dir: tmp, conditions: c}
	if only != "stores" && only != "layers" { // they have servers of their own
		if b.server, err = gateway.Start(ctx, filepath.Join(tmp, "s3")); err != nil {
			return err
		}
		defer b.server.Close()
		if b.proxy, err = proxy.Start(b.server.Endpoint, proxy.Options{}); err != nil {
			return err
		}
		defer b.proxy.Close()
		if b.data, err = upload(ctx, b.server); err != nil {
			return err
		}
		if err := environment(b.server); err != nil {
			return err
		}
	}
	head := os.Stdout
	if asJSON {
		head = os.Stderr
	}
	fmt.Fprintf(head,
		"%s %s/%s, %d CPUs for client, proxy and server together; versitygw on loopback, %d objects of %d MiB in the page cache;\n"+
			"stores: a server of each kind in this process, which makes no MD5, without a limit for a connection\n"+
			"throttled: %v to the first byte, %d MB/s a connection, %d MB/s the whole server; %d requests in flight; %d MiB a measurement\n",
		runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.GOMAXPROCS(0), objects, objectSize>>20,
		c.firstByte, c.perConn/1e6, c.total/1e6, c.inFlight, c.mib)
	var failed []error
	for _, g := range groups {
		if !slices.Contains(strings.Split(only, ","), g.name) {
			continue
		}
		failed = append(failed, b.Measure(g.name, func() error { return g.run(b) }))
		if ctx.Err() != nil {
			break
		}
	}
	if asJSON {
		failed = append(failed, b.JSON(os.Stdout))
	} else {
		failed = append(failed, b.Print(os.Stdout))
	}
	return errors.Join(failed...)
}

// environment makes the SDK's credential chain find the server, for the store under test.
func environment(s *gateway.Server) error {
	for _, line := range append(s.Env(), "AWS_EC2_METADATA_DISABLED=true", "AWS_CONFIG_FILE=/none",
		"AWS_SHARED_CREDENTIALS_FILE=/none") {
		name, value, _ := strings.Cut(line, "=")
		if name == "AWS_ENDPOINT_URL" {
			continue // some of the time it is the proxy's
		}
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	return nil
}
