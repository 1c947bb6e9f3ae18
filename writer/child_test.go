package writer_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/local"
	"github.com/shardtool/shardtool/writer"
)

// childJob is a pack that another process does.
type childJob struct {
	Dir    string
	Tag    string // of the payloads; also the seed, and the beginning of keys
	Items  int
	Mode   writer.Mode
	Plain  bool
	Resume bool
	// Pause is slept before each payload, so that a kill can fall anywhere.
	Pause time.Duration
	// Index, when not nil, has it index these archives with blocks of BlockSize bytes.
	Index     []string
	BlockSize int64
	// Parts, when not 0, makes it pack one part of that many; part -1 is the commit.
	Part, Parts int
}

// childResult is what it prints: the last line of stdout.
type childResult struct {
	Result    *writer.Result
	Part      *writer.PartResult
	Lost      bool // ErrLost, ErrExists, or ErrBusy of an overwrite that finds the other's shards
	Error     string
	BytesRead int64
}

func (j *childJob) source() *synth {
	seed := uint64(0)
	for _, c := range j.Tag {
		seed = seed*131 + uint64(c)
	}
	s := &synth{items: makeItems(j.Items, 12<<10, seed), tag: j.Tag}
	for i := range s.items {
		s.items[i].key = j.Tag + "/" + s.items[i].key
	}
	if j.Pause > 0 {
		s.begin = func(context.Context, int) error { time.Sleep(j.Pause); return nil }
	}
	return s
}

func (j *childJob) options() writer.Options {
	opt := small("d")
	opt.Memory = 8 * opt.BlockSize // few blocks in flight, so that the pauses determine how long a run lasts
	opt.Mode, opt.Plain, opt.Resume = j.Mode, j.Plain, j.Resume
	return opt
}

func child(text string) int {
	var job childJob
	if err := json.Unmarshal([]byte(text), &job); err != nil {
		panic(err)
	}
	st, err := local.New(job.Dir, local.Options{NoSync: true})
	if err != nil {
		panic(err)
	}
	src := job.source()
	fmt.Println("begin")
	var out childResult
	switch {
	case job.Index != nil:
		out.Result, err = writer.Index(context.Background(), st, job.Index, writer.Options{Mode: job.Mode, BlockSize: job.BlockSize, Workers: 2})
	case job.Parts > 0 && job.Part < 0:
		out.Result, err = writer.Commit(context.Background(), st, writer.CommitOptions{Parts: job.Parts})
	case job.Parts > 0:
		out.Part, err = writer.PackPart(context.Background(), st, src, job.Part, job.Parts, job.options())
	default:
		out.Result, err = writer.Pack(context.Background(), st, src, job.options())
	}
	if err != nil {
		out.Error = err.Error()
		out.Lost = errors.Is(err, writer.ErrLost) || errors.Is(err, writer.ErrExists) || errors.Is(err, objstore.ErrBusy)
	}
	out.BytesRead = src.bytes.Load()
	_ = json.NewEncoder(os.Stdout).Encode(out)
	return 0
}

func (j *childJob) command(t *testing.T) *exec.Cmd {
	t.Helper()
	text, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+string(text), "GORACE=atexit_sleep_ms=0")
	return cmd
}

func parseChild(t *testing.T, stdout []byte) childResult {
	t.Helper()
	lines := bytes.Split(bytes.TrimSpace(stdout), []byte("\n"))
	var out childResult
	if err := json.Unmarshal(lines[len(lines)-1], &out); err != nil {
		t.Fatalf("%v in %q", err, stdout)
	}
	return out
}

func (j *childJob) run(t *testing.T) childResult {
	t.Helper()
	out, err := j.command(t).Output()
	if err != nil {
		t.Fatal(err)
	}
	return parseChild(t, out)
}
