package main

import (
	"context"
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/shardtool/shardtool/internal/testset/programs"
)

// TestReadingsInAChild holds the script's measuring against what is known: how long a child works,
// what it holds, how it fails.
func TestReadingsInAChild(t *testing.T) {
	if testing.Short() {
		t.Skip("a script in Python: make test runs it without the race detector")
	}
	const script = `
import json, os, subprocess, sys, time
sys.path.insert(0, "peers")
import measure

def spin():
    before, end = measure.cpu(), time.process_time() + 0.2
    while time.process_time() < end:
        pass
    subprocess.run([sys.executable, "-c", "import time\nwhile time.process_time() < 0.2: pass"])
    return measure.cpu() - before

def hold():
    held = bytearray(b"x" * (64 << 20))
    time.sleep(0.5)
    return len(held)

def fail():
    raise ValueError("broken shard\nand more")

def late():
    child = subprocess.Popen(["sleep", "600"])
    with open(sys.argv[1], "w") as f:
        f.write(str(child.pid))
    time.sleep(600)

def large():
    return len(bytearray(b"x" * (256 << 20)))

def reason(work, limit=20, most=0):
    try:
        measure.in_child(work, limit, most)
    except measure.Failed as err:
        return str(err)

out = {"cpu": measure.in_child(spin, 60)[0], "peak": measure.in_child(hold, 60)[1], "failed": reason(fail)}
out["late"], out["ended"] = reason(late, 4), reason(lambda: os._exit(3))
out["limited"] = reason(large, 60, 64 << 20)
with open(sys.argv[1]) as f:
    pid = int(f.read())
deadline = time.monotonic() + 10
while os.path.exists(f"/proc/{pid}") and open(f"/proc/{pid}/stat").read().split()[2] != "Z" and time.monotonic() < deadline:
    time.sleep(0.01)
out["alive"] = os.path.exists(f"/proc/{pid}") and open(f"/proc/{pid}/stat").read().split()[2] != "Z"
json.dump(out, sys.stdout)
`
	programs.Need(t, "python3")
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "python3", "-B", "-c", script, t.TempDir()+"/pid")
	var words strings.Builder
	cmd.Stderr = &words
	text, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, words.String())
	}
	var got struct {
		CPU, Peak                    float64
		Failed, Late, Ended, Limited string
		Alive                        bool
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	// Twice 0.2 s of work, and the start of an interpreter.
	if got.CPU < 0.35 {
		t.Errorf("%v s of processor time, for 0.4 s and a bit", got.CPU)
	}
	if got.Peak < 64 || got.Peak > 300 {
		t.Errorf("%v MiB, for 64 and an interpreter", got.Peak)
	}
	if got.Failed != "ValueError: broken shard" || got.Late != "no result after 4 s" || !strings.HasPrefix(got.Ended, "it ended") {
		t.Errorf("failures: %q, %q, %q", got.Failed, got.Late, got.Ended)
	}
	if !strings.HasPrefix(got.Limited, "it ended: it was killed") && !strings.HasPrefix(got.Limited, "memory cannot be limited here") {
		t.Errorf("256 MiB in a group of 64: %q", got.Limited)
	}
	if got.Alive {
		t.Error("what a child had started lives on")
	}
}

func TestServerEnvironment(t *testing.T) {
	s := &s3Server{env: []string{"A=1", "AB=2", "A=3"}}
	if s.value("A") != "3" || s.value("AB") != "2" || s.value("B") != "" {
		t.Errorf("%q, %q, %q", s.value("A"), s.value("AB"), s.value("B"))
	}
}
