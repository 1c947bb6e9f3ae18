// Package python runs shardtool.Writer of the Python package against an S3 server.
package python

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/shardtool/shardtool/test/gateway"
	"github.com/shardtool/shardtool/test/proxy"
)

// rig is a server, the program, and the environment in which both Python and it find the server.
type rig struct {
	root, bin, bucket string
	env               []string
	client            *s3.Client
}

// newRig starts a server over a network with a latency of 5 ms.
func newRig(t *testing.T) *rig {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skipf("no python3: %v", err)
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{root: root, bin: filepath.Join(t.TempDir(), "shardtool")}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", r.bin, "./cmd/shardtool")
	build.Dir = root
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	server := gateway.Test(t)
	p, err := proxy.Start(server.Endpoint, proxy.Options{FirstByte: 5 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	r.bucket, r.client = server.Bucket, server.Client()
	r.env = append(os.Environ(), server.Env()...)
	r.env = append(r.env, "AWS_ENDPOINT_URL="+p.URL, "SHARDTOOL_BINARY="+r.bin, "PYTHONPATH="+root+"/python/src", "PYTHONDONTWRITEBYTECODE=1")
	return r
}

// command returns a command in the environment.
func (r *rig) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = r.env
	return cmd
}

// output runs a command and returns what it printed.
func (r *rig) output(t *testing.T, name string, args ...string) string {
	t.Helper()
	var stderr bytes.Buffer
	cmd := r.command(t.Context(), name, args...)
	cmd.Stderr = &stderr
	text, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %q: %v: %s", name, args, err, stderr.String())
	}
	return strings.TrimSpace(string(text))
}

// digest returns the digest of a data set, and how many samples it has.
func (r *rig) digest(t *testing.T, url string) (digest string, samples int) {
	t.Helper()
	var info struct {
		Digest  string
		Samples int
	}
	if err := json.Unmarshal([]byte(r.output(t, r.bin, "inspect", url, "--json")), &info); err != nil {
		t.Fatal(err)
	}
	return info.Digest, info.Samples
}

// hasShard reports whether there is a shard in the bucket.
func (r *rig) hasShard(t *testing.T) bool {
	t.Helper()
	out, err := r.client.ListObjectsV2(t.Context(), &s3.ListObjectsV2Input{Bucket: &r.bucket, Prefix: new("train/data-")})
	if err != nil {
		t.Fatal(err)
	}
	return len(out.Contents) > 0
}

// TestKilled kills a program that writes to S3, and continues it. Nothing is visible before the
// last sample is written, and the digest is that of a folder that was written at once.
func TestKilled(t *testing.T) {
	r := newRig(t)
	const samples, kills = 6000, 6
	script := r.root + "/python/tests/writer_help.py"
	_, want, _ := strings.Cut(r.output(t, "python3", script, t.TempDir()+"/whole", strconv.Itoa(samples), "0"), "\n")
	url := fmt.Sprintf("s3://%s/train", r.bucket)
	rng := rand.New(rand.NewPCG(1, 2))
	var begins []int
	for try := range 60 {
		cmd := r.command(t.Context(), "python3", script, url, strconv.Itoa(samples), "0.02")
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewReader(out)
		text, _ := lines.ReadString('\n')
		begin, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil {
			t.Fatal(err)
		}
		begins = append(begins, begin)
		if try < kills {
			time.Sleep(300*time.Millisecond + time.Duration(rng.Int64N(int64(500*time.Millisecond))))
			for try == kills-1 && slices.Max(begins) == 0 && !r.hasShard(t) { // on a busy machine no run may have come to one
				time.Sleep(10 * time.Millisecond)
			}
			_ = cmd.Process.Kill() // it may have ended
		}
		digest, _ := io.ReadAll(lines)
		if cmd.Wait() == nil {
			if got, n := r.digest(t, url); got != want || strings.TrimSpace(string(digest)) != want || n != samples {
				t.Errorf("%d samples with digest %s, printed %s, want %s", n, got, digest, want)
			}
			if slices.Max(begins) == 0 {
				t.Errorf("nothing was resumed: %v", begins)
			}
			r.output(t, r.bin, "verify", url, "--deep")
			return
		}
		// Nothing is visible, or all of it: the kill came after the last sample, and the child published.
		if err := r.command(t.Context(), r.bin, "ls", url).Run(); err == nil {
			if got, n := r.digest(t, url); got != want || n != samples {
				t.Fatalf("%d of %d samples are visible, with digest %s, want %s", n, samples, got, want)
			}
		}
	}
	t.Fatalf("the program did not end; it began at %v", begins)
}

// program writes, appends, and is refused, as docs/writing.md describes it.
const program = `
import sys
import shardtool

url = sys.argv[1]
with shardtool.Writer(url, samples_per_shard=100) as w:
    for i in range(1000):
        w.write({"x": i, "text": f"sample {i} " * 50})
with shardtool.Writer(url, on_exists="append") as w:
    for i in range(1000, 1500):
        w.write({"x": i, "text": f"sample {i} " * 50})
try:
    with shardtool.Writer(url):
        pass
    sys.exit("no error")
except shardtool.ExistsError as err:
    assert str(err).startswith(url), err
one, two = (shardtool.Writer(url, on_exists="overwrite", name=n).__enter__() for n in "ab")
one.write({"x": -1})
two.write({"x": -2})
one.close()
try:
    two.close()
    sys.exit("no error")
except shardtool.ShardtoolError as err:
    print("the second writer:", err)
with shardtool.Writer(url + "-parts", rank=1, world_size=2) as w:
    w.write({"x": 1})
    assert w.state_dict()["samples"] == 0
assert not w.result["published"]
shardtool.optimize(lambda i: {"__key__": f"{i:04d}", "x": i}, range(1000), url + "-optimize", workers=2, parts=3)
`

// TestModes appends, overwrites, and writes parts.
func TestModes(t *testing.T) {
	r := newRig(t)
	url := fmt.Sprintf("s3://%s/train", r.bucket)
	file := filepath.Join(t.TempDir(), "program.py")
	if err := os.WriteFile(file, []byte(program), 0o644); err != nil {
		t.Fatal(err)
	}
	if said := r.output(t, "python3", file, url); !strings.Contains(said, "the second writer:") {
		t.Errorf("printed %q", said)
	}
	if _, n := r.digest(t, url); n != 1 {
		t.Errorf("%d samples after the overwrite", n)
	}
	generations := r.output(t, r.bin, "inspect", url, "--json")
	if !strings.Contains(generations, `"generation":3`) && !strings.Contains(generations, `"generation": 3`) {
		t.Errorf("not the third generation: %s", generations)
	}
	if _, n := r.digest(t, url+"-optimize"); n != 1000 {
		t.Errorf("%d samples of optimize", n)
	}
	if err := r.command(t.Context(), r.bin, "ls", url+"-parts").Run(); err == nil {
		t.Error("one part of two is visible")
	}
	r.output(t, r.bin, "verify", url+"-optimize", "--deep")
}
