package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/cmd/shardtool/internal/serve"
)

// refusedStarts are members of START: those that agree with the checkpoint, and those that do not.
var refusedStarts = []string{
	``, `"shuffle":true`, `"shuffle":false`, `"seed":3`, `"seed":4`, `"epoch":0`, `"epoch":3`, `"epochs":0`, `"global_batch":8`, `"global_batch":7`, `"batch_size":4`,
	`"rank":1,"world_size":2`, `"rank":2,"world_size":2`, `"rank":1`, `"shuffle_memory":2147483648`, `"shuffle_memory":1024`, `"shuffle_memory":102400`,
	`"whole_shards":true`, `"lanes":0`, `"lanes":7`, `"run_blocks":3`, `"delay":1000`, `"head":3`, `"affinity":"epoch"`, `"affinity":"run"`, `"tail":"short"`,
	`"tail":"wrap"`, `"tail":"none"`, `"units":{"kind":"pack","size":128,"by":"tokens","long":"error"}`, `"units":{"kind":"pack","size":200,"by":"tokens","long":"error"}`,
	`"units":{"kind":"pack","size":128,"by":"other","long":"error"}`, `"units":{"kind":"pack","size":128,"by":"tokens","long":"drop"}`,
	`"units":{"kind":"pack","size":128,"by":"tokens","long":"error","window":300}`, `"units":{"kind":"bucket","size":300,"by":"tokens","long":"error"}`,
	`"units":{"kind":"heap","size":300,"by":"tokens","long":"error"}`, `"change_mix":true`, `"change_mix":true,"seed":4`, `"skip_steps":[4,5]`, `"skip_steps":[0,1]`,
	`"begin":0`, `"begin":1`, `"begin":1,"epochs":1`, `"ledger":"x"`,
}

// TestRefusedStarts is TestRefusedCheckpoints for programs that start this one.
func TestRefusedStarts(t *testing.T) {
	if testing.Short() {
		t.Skip("one command after another: make test runs it without the race detector")
	}
	golden, err := filepath.Abs("testdata/refused_serve.txt")
	if err != nil {
		t.Fatal(err)
	}
	makeRefused(t)
	before := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(before)
	var text strings.Builder
	for _, c := range []string{"1", "3", "2", "2-units", "edited", "none", ""} {
		checkpoint := ""
		if c != "" {
			file, err := os.ReadFile(c)
			if err != nil {
				t.Fatal(err)
			}
			checkpoint = string(file)
		}
		for _, target := range refusedTargets {
			starts := refusedStarts
			if target != "set" && target != "mix.yaml" || c == "edited" || c == "none" {
				starts = starts[:1]
			}
			var outcomes table
			for _, start := range starts {
				outcomes.add(refusal(serveOnce(t, target, checkpoint, start)), "("+start+")")
			}
			fmt.Fprintf(&text, "checkpoint %s, %s\n%v", c, target, &outcomes)
		}
	}
	compareGolden(t, golden, text.String())
}

// serveOnce opens and starts as the Python package does.
func serveOnce(t *testing.T, address, checkpoint, start string) error {
	q := serve.StartRequest{Resume: serve.ResumeRequest{Checkpoint: checkpoint}}
	if err := json.Unmarshal([]byte("{"+start+"}"), &q); err != nil {
		t.Fatal(err)
	}
	if q.Units != nil {
		q.Units.Plans = "none"
	}
	o, err := new(share).open(t.Context(), &serve.OpenRequest{Address: address, Checkpoint: checkpoint, ChangeMix: q.Resume.ChangeMix, Workers: 1})
	if err != nil {
		return err
	}
	defer o.Close()
	out := serve.Started{Close: func() {}}
	defer func() { out.Close() }()
	s, err := new(share).stream(t.Context(), o, &q, &out)
	if err != nil {
		return err
	}
	return s.Close()
}
