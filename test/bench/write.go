package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/shardtool/shardtool/bench/table"
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
used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
print(json.dumps({"seconds": seconds, "cpu": sum(u.ru_utime + u.ru_stime for u in used)}))
`

// write measures shardtool.Writer of the Python package over the throttled network. What counts is
// the rate of a long run: the difference of two runs, one of them three times as long.
func (b *bench) write() error {
	if _, err := exec.LookPath("python3"); err != nil {
		b.LeftOut("write", err.Error())
		return nil
	}
	bin := filepath.Join(b.dir, "shardtool")
	build := exec.CommandContext(b.ctx, "go", "build", "-trimpath", "-o", bin, "./cmd/shardtool")
	build.Dir, build.Env = "..", append(os.Environ(), "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, text)
	}
	source, err := filepath.Abs("../python/src")
	if err != nil {
		return err
	}
	if err := b.proxy.Set(proxy.Options{FirstByte: b.firstByte, Up: b.total}); err != nil {
		return err
	}
	env := append(os.Environ(), "AWS_ENDPOINT_URL="+b.proxy.URL, "SHARDTOOL_BINARY="+bin, "PYTHONPATH="+source, "PYTHONDONTWRITEBYTECODE=1")
	run := func(megabytes int) (took struct{ Seconds, CPU float64 }, err error) {
		defer os.RemoveAll(filepath.Join(b.dir, "s3", "data", b.server.Bucket, "written"))
		cmd := exec.CommandContext(b.ctx, "python3", "-c", writeScript, "s3://"+b.server.Bucket+"/written", fmt.Sprint(megabytes))
		cmd.Env = env
		text, err := cmd.Output()
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			return took, fmt.Errorf("%w\n%s", err, exit.Stderr)
		}
		if err != nil {
			return took, err
		}
		return took, json.Unmarshal(text, &took)
	}
	var share table.Sample
	var cpu, whole float64
	short := max(b.mib/5, 100)
	for range b.times {
		few, err := run(short)
		if err != nil {
			return err
		}
		many, err := run(3 * short)
		if err != nil {
			return err
		}
		share = append(share, float64(2*short)*1e6/(many.Seconds-few.Seconds)/float64(b.total))
		cpu, whole = many.CPU/many.Seconds, float64(3*short)*1e6/many.Seconds/float64(b.total)
	}
	b.AtLeast("write", "Writer in Python, incompressible 100 KB / cap", share, "x", 0.95,
		fmt.Sprintf("%s; with start and end of a run of %d MB %.2f; %.2f cores for Python and its child", mbs(share.Median()*float64(b.total)), 3*short, whole, cpu))
	return nil
}
