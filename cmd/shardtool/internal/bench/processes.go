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

// RankError reports that the process of a rank failed. The process wrote the reason to its stderr.
type RankError struct {
	// Rank is the rank, Code its exit code, or -1 if a signal ended it.
	Rank, Code int
}

// Error names the rank and how it ended.
func (e *RankError) Error() string {
	if e.Code < 0 {
		return fmt.Sprintf("the process of rank %d was killed", e.Rank)
	}
	return fmt.Sprintf("rank %d failed", e.Rank)
}

// Spawn runs ranks first to first+n-1 as concurrent processes and collects their measurements.
// command returns the process of one rank, which reads its job with [ReadJob] and answers with
// [WriteRank]. The first failure ends all of them.
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
	if ctx.Err() != nil { // another failure ended it
		return context.Cause(ctx)
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return &RankError{j.Rank, exit.ExitCode()}
	}
	if err != nil {
		return fmt.Errorf("rank %d: %w", j.Rank, err)
	}
	if err := json.Unmarshal(out.line, r); err != nil {
		return fmt.Errorf("rank %d: it reported no measurement: %w", j.Rank, err)
	}
	return nil
}

// start starts a process and sends it its job. Its stdin stays open until it ends: a process whose
// stdin ends has lost its parent.
func start(cmd *exec.Cmd, job []byte) error {
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	_, _ = in.Write(append(job, '\n')) // a process that ends without reading it reports why
	return nil
}

// ReadJob reads the job of a rank's process. It calls orphan when the parent is gone.
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

// WriteRank sends the measurement of a rank's process to its parent.
func WriteRank(w io.Writer, r *Rank) error { return json.NewEncoder(w).Encode(r) }

// report is a line of progress, before the measurement.
type report struct {
	Done *float64 `json:"done"`
}

// WriteShare sends the completed share of a job to the parent.
func WriteShare(w io.Writer, share float64) { _ = json.NewEncoder(w).Encode(report{&share}) }

// answer receives the output of a rank's process: reports, one per line, then the measurement,
// which it keeps in line.
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
