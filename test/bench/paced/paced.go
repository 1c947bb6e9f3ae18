// Package paced has a data set streamed to a consumer that needs most of what could come, for long,
// and watches what the process takes.
//
//	Run -> shardtool bench, without a step  -> the ceiling
//	    -> shardtool bench, with the step that needs a share of it -> Result
package paced

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// Options define the stream and its consumer.
type Options struct {
	// Binary is shardtool's.
	Binary string
	// Args are those of shardtool bench: the data set, and how it is streamed.
	Args []string
	// Duration is how long is measured, from the first batch on.
	Duration time.Duration
}

// need is the share of the ceiling that the consumer needs, ceiling how long the ceiling is
// measured at most.
const (
	need    = 0.9
	ceiling = 20 * time.Second
)

// Result is what came of it.
type Result struct {
	// Duration is that of Options.
	Duration time.Duration
	// Ceiling and Rate are samples a second without and with the step, Bytes the bytes a second of the
	// latter.
	Ceiling, Rate, Bytes float64
	Step                 time.Duration
	Steps                int
	// Share of the time that was waited after the first batch, and the longest wait; First is the time
	// to the first batch.
	Share       float64
	Worst       time.Duration
	First       time.Duration
	Epochs      float64
	Stalls      map[string]float64
	Unexplained float64 // seconds of the wait that have no cause
	Wait        float64 // seconds
	// Memory is the budget; the others are what the process took: the mean of resident bytes, the most
	// goroutines and open files, in the second quarter of the time and in the last.
	Memory                   int64
	Resident                 [2]float64
	Goroutines, Files, Looks [2]int
}

// report is what is used of the JSON of shardtool bench.
type report struct {
	Data struct {
		Samples uint64 `json:"samples"`
	} `json:"data_set"`
	Summary struct {
		Samples float64 `json:"samples_per_s"`
		Bytes   float64 `json:"bytes_per_s"`
	} `json:"summary"`
	Ranks []struct {
		First   float64            `json:"first_batch_s"`
		Steps   int                `json:"steps"`
		Samples uint64             `json:"samples"`
		Wait    float64            `json:"wait_s"`
		WaitMax float64            `json:"wait_max_s"`
		Share   float64            `json:"wait_share"`
		Stalls  map[string]float64 `json:"stalls_s"`
		Ready   float64            `json:"ready_s"`
		Memory  int64              `json:"memory_budget"`
		Line    struct {
			Buckets []bucket `json:"buckets"`
		} `json:"timeline"`
	} `json:"ranks"`
}

type bucket struct {
	Resident   int64 `json:"resident_bytes"`
	Goroutines int   `json:"goroutines"`
	Files      int   `json:"open_files"`
}

// Run measures the ceiling, and then the consumer.
func Run(ctx context.Context, o Options) (*Result, error) {
	free, err := o.bench(ctx, min(ceiling, o.Duration), 0)
	if err != nil {
		return nil, err
	}
	if free.Summary.Samples <= 0 {
		return nil, fmt.Errorf("%s: no sample came in %v", strings.Join(o.Args, " "), min(ceiling, o.Duration))
	}
	batch := float64(free.Ranks[0].Samples) / float64(free.Ranks[0].Steps)
	step := time.Duration(batch / (need * free.Summary.Samples) * float64(time.Second))
	paced, err := o.bench(ctx, o.Duration, step)
	if err != nil {
		return nil, err
	}
	k := &paced.Ranks[0]
	r := &Result{
		Duration: o.Duration,
		Ceiling:  free.Summary.Samples, Rate: paced.Summary.Samples, Bytes: paced.Summary.Bytes, Step: step, Steps: k.Steps,
		Share: k.Share, Wait: k.Wait, Worst: seconds(k.WaitMax), First: seconds(k.First), Stalls: k.Stalls, Unexplained: k.Ready, Memory: k.Memory,
	}
	if paced.Data.Samples > 0 {
		r.Epochs = float64(k.Samples) / float64(paced.Data.Samples)
	}
	n := len(k.Line.Buckets)
	r.Resident[0], r.Goroutines[0], r.Files[0], r.Looks[0] = usage(k.Line.Buckets[n/4 : n/2])
	r.Resident[1], r.Goroutines[1], r.Files[1], r.Looks[1] = usage(k.Line.Buckets[n-n/4:])
	return r, nil
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// usage sums up the buckets in which somebody looked.
func usage(all []bucket) (resident float64, goroutines, files, looks int) {
	for _, b := range all {
		if b.Resident == 0 {
			continue
		}
		looks++
		resident += float64(b.Resident)
		goroutines, files = max(goroutines, b.Goroutines), max(files, b.Files)
	}
	return resident / float64(max(looks, 1)), goroutines, files, looks
}

// bench runs shardtool bench on one rank.
func (o *Options) bench(ctx context.Context, d, step time.Duration) (*report, error) {
	args := append([]string{"bench"}, o.Args...)
	cmd := exec.CommandContext(ctx, o.Binary, append(args, "--json", "--quiet", "--duration", d.String(), "--step", step.String())...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", cmd, err, stderr.String())
	}
	r := new(report)
	if err := json.Unmarshal(out, r); err != nil {
		return nil, fmt.Errorf("%s: %w", cmd, err)
	}
	if len(r.Ranks) != 1 || r.Ranks[0].Steps == 0 {
		return nil, fmt.Errorf("%s: one rank was to take steps: %s", cmd, out)
	}
	return r, nil
}
