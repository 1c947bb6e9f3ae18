package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"time"
)

// RankError: the process of a rank failed. It has said why on its stderr.
type RankError struct {
	// Rank is which, Code its exit code, -1 where a signal ended it.
	Rank, Code int
}

// Error says which rank, and what became of it.
func (e *RankError) Error() string {
	if e.Code < 0 {
		return fmt.Sprintf("the process of rank %d was killed", e.Rank)
	}
	return fmt.Sprintf("rank %d failed", e.Rank)
}

// Spawn runs ranks first to first+n-1 as processes, all at once, and collects what they measured. command makes the process of one
// rank, which reads its job by [ReadJob] and answers by [WriteRank]. The first failure ends all.
func Spawn(ctx context.Context, command func(context.Context) *exec.Cmd, j Job, first, n int) ([]Rank, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ranks := make([]Rank, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			own := j
			own.Rank = first + i
			if err := runRank(ctx, command, own, &ranks[i]); err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	return ranks, context.Cause(ctx)
}

func runRank(ctx context.Context, command func(context.Context) *exec.Cmd, j Job, r *Rank) error {
	text, err := json.Marshal(j)
	if err != nil {
		return err
	}
	cmd := command(ctx)
	cmd.WaitDelay = 5 * time.Second
	out := answer{tell: func(share float64) {
		if j.Tell != nil {
			j.Tell(j.Rank, share)
		}
	}}
	cmd.Stdout = &out
	err = start(cmd, text)
	if err == nil {
		err = cmd.Wait()
	}
	if ctx.Err() != nil { // it was ended because of something else
		return context.Cause(ctx)
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return &RankError{j.Rank, exit.ExitCode()}
	}
	if err != nil {
		return fmt.Errorf("rank %d: %w", j.Rank, err)
	}
	if err := json.Unmarshal(out.line, r); err != nil {
		return fmt.Errorf("rank %d: it says no measurement: %w", j.Rank, err)
	}
	return nil
}

// start hands a process its job. Its stdin stays open until it ends: a process that sees the end of it has lost its parent.
func start(cmd *exec.Cmd, job []byte) error {
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	_, _ = in.Write(append(job, '\n')) // one that ends without it says why
	return nil
}

// ReadJob is the beginning of a rank's process, WriteRank its end. orphan is called when the process that asked is gone.
func ReadJob(r io.Reader, orphan func()) (j Job, err error) {
	d := json.NewDecoder(r)
	if err := d.Decode(&j); err != nil {
		return j, err
	}
	go func() {
		_, _ = io.Copy(io.Discard, r)
		orphan()
	}()
	return j, nil
}

// WriteRank hands a measurement to the process that asked for it.
func WriteRank(w io.Writer, r *Rank) error { return json.NewEncoder(w).Encode(r) }

// report is a line before the measurement, of a rank that is watched.
type report struct {
	Done *float64 `json:"done"`
}

// WriteShare tells the process that asked how much of a job is done.
func WriteShare(w io.Writer, share float64) { _ = json.NewEncoder(w).Encode(report{&share}) }

// answer is what a rank's process writes: reports, a line each, and its measurement in line.
type answer struct {
	tell func(share float64)
	line []byte
}

func (a *answer) Write(p []byte) (int, error) {
	a.line = append(a.line, p...)
	for {
		line, rest, whole := bytes.Cut(a.line, []byte{'\n'})
		var is report
		if !whole || json.Unmarshal(line, &is) != nil || is.Done == nil {
			return len(p), nil
		}
		a.tell(*is.Done)
		a.line = rest
	}
}
