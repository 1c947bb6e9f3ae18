package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/shardtool/shardtool/bench/table"
	"github.com/shardtool/shardtool/test/gateway"
	"github.com/shardtool/shardtool/test/proxy"
)

// writeScript writes incompressible samples of 100 KB: URL MEGABYTES.
const writeScript = `
import json, os, resource, sys, time
import shardtool
data = [os.urandom(100_000 - 4) for _ in range(64)]
begin = time.perf_counter()
with shardtool.Writer(sys.argv[1]) as w:
    for i in range(10 * int(sys.argv[2])):
        w.write({"bin": data[i % 64] + i.to_bytes(4, "little")})
seconds = time.perf_counter() - begin
used = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps({"seconds": seconds, "python": used.ru_utime + used.ru_stime}))
`

// write measures shardtool.Writer of the Python package over the throttled network, and in turn the
// floor: a bare upload of as many bytes in the same parts, which hashes nothing. What counts is the
// rate of a long run: the difference of two runs, one of them three times as long.
func (b *bench) write() error {
	if _, err := exec.LookPath("python3"); err != nil {
		b.LeftOut("write", err.Error())
		return nil
	}
	far, err := b.startFar()
	if err != nil {
		return err
	}
	defer far.close()
	bin, err := b.program()
	if err != nil {
		return err
	}
	source, err := filepath.Abs("../python/src")
	if err != nil {
		return err
	}
	env := append(os.Environ(), far.server.Env()...)
	env = append(env, "AWS_ENDPOINT_URL="+far.proxy.URL, "SHARDTOOL_BINARY="+bin, "PYTHONPATH="+source,
		"PYTHONDONTWRITEBYTECODE=1")
	python := func(megabytes int) (wrote, error) {
		cmd := exec.CommandContext(b.ctx, "python3", "-c", writeScript, "s3://"+far.server.Bucket+"/written",
			fmt.Sprint(megabytes))
		cmd.Env = env
		return far.timed(cmd)
	}
	bare := func(megabytes int) (wrote, error) { return far.upload(b.ctx, megabytes) }
	short := max(b.mib/5, 100)
	moved := float64(2*short) * 1e6
	var rates, floors table.Sample
	var ours, floor wrote
	for range b.times {
		if floor, _, err = longRun(short, bare); err != nil {
			return err
		}
		var whole wrote
		if ours, whole, err = longRun(short, python); err != nil {
			return err
		}
		rates, floors = append(rates, moved/ours.Seconds), append(floors, moved/floor.Seconds)
		ours.Whole = float64(3*short) * 1e6 / whole.Seconds
	}
	b.AtLeast("write", "Writer in Python, incompressible 100 KB / cap", rates.By(float64(b.total)), "x", 0.95,
		fmt.Sprintf("%s; with start and end of a run of %d MB %s; %s", mbs(rates.Median()), 3*short, mbs(ours.Whole),
			ours.costs(moved)))
	b.AtLeast("write", "Writer in Python, incompressible 100 KB / bare upload in the same parts, without a hash",
		rates.Over(floors), "x", 0.95,
		fmt.Sprintf("%s; %s; %d parts at once; the server's data in %s", mbs(floors.Median()), floor.costs(moved),
			floorPartsOut, far.dir))
	return nil
}

// wrote is what an upload took: seconds, and processor seconds of each process.
type wrote struct {
	Seconds float64
	Python  float64 // the interpreter; Client has it too
	Client  float64
	Proxy   float64
	Server  float64
	Whole   float64 // bytes a second with start and end
}

// costs names the processor time for a gigabyte: two cores at 300 MB/s have 6.7 s.
func (w wrote) costs(moved float64) string {
	gb := moved / 1e9
	child := ""
	if w.Python > 0 {
		child = fmt.Sprintf(" (%.2f of it Python)", w.Python/gb)
	}
	return fmt.Sprintf("processor seconds for a GB: client %.2f%s, proxy %.2f, server %.2f", w.Client/gb, child,
		w.Proxy/gb, w.Server/gb)
}

// longRun returns the difference of two runs, and the longer one.
func longRun(short int, run func(megabytes int) (wrote, error)) (d, long wrote, err error) {
	few, err := run(short)
	if err != nil {
		return d, long, err
	}
	long, err = run(3 * short)
	return wrote{
		Seconds: long.Seconds - few.Seconds, Python: long.Python - few.Python, Client: long.Client - few.Client,
		Proxy: long.Proxy - few.Proxy, Server: long.Server - few.Server,
	}, long, err
}

// farServer is a server that takes as little processor time as it can, and a throttled way to it.
type farServer struct {
	dir    string
	server *gateway.Server
	proxy  *proxy.Proxy
}

// startFar starts a server whose data is in memory if that is possible, and whose ETags are no
// MD5s: on a machine that the client shares with the server, its disk and its hashes would be what
// is measured.
func (b *bench) startFar() (_ *farServer, err error) {
	f := &farServer{}
	for _, parent := range []string{"/dev/shm", b.dir} {
		if f.dir, err = os.MkdirTemp(parent, "shardtool-bench-s3-*"); err != nil {
			continue
		}
		if f.server, err = gateway.Start(b.ctx, f.dir, "--data-integrity-etag"); err == nil {
			break
		}
		os.RemoveAll(f.dir)
	}
	if err != nil {
		return nil, err
	}
	f.proxy, err = proxy.Start(f.server.Endpoint, proxy.Options{FirstByte: b.firstByte, Up: b.total})
	if err != nil {
		f.server.Close()
		os.RemoveAll(f.dir)
	}
	return f, err
}

func (f *farServer) close() {
	f.proxy.Close()
	f.server.Close()
	os.RemoveAll(f.dir)
}

// timed runs a process that prints a wrote, and removes what it wrote.
func (f *farServer) timed(cmd *exec.Cmd) (took wrote, err error) {
	defer os.RemoveAll(filepath.Join(f.dir, "data", f.server.Bucket, "written"))
	proxied, served := processor(os.Getpid()), processor(f.server.PID())
	text, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return took, fmt.Errorf("%w\n%s", err, exit.Stderr)
	}
	if err != nil {
		return took, err
	}
	err = json.Unmarshal(text, &took)
	took.Proxy, took.Server = processor(os.Getpid())-proxied, processor(f.server.PID())-served
	took.Client = (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
	return took, err
}
