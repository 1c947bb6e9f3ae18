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
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Options define the stream and its consumer.
type Options struct {
	// Binary is shardtool's.
	Binary string
	// Args are the arguments of shardtool bench: the data set, and how it is streamed.
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
	// Duration is Options.Duration.
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
	// Memory is the budget; the others are what the process took: the mean of resident bytes and the
	// most open files, in the second quarter of the time and in the last. Looks is how often they were
	// read: never where the system does not report them.
	Memory       int64
	Resident     [2]float64
	Files, Looks [2]int
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
	} `json:"ranks"`

	looks []look
}

// A look is what the process of the rank takes at a time.
type look struct {
	resident float64
	files    int
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
		Ceiling:  free.Summary.Samples, Rate: paced.Summary.Samples, Bytes: paced.Summary.Bytes, Step: step,
		Steps: k.Steps,
		Share: k.Share, Wait: k.Wait, Worst: seconds(k.WaitMax), First: seconds(k.First), Stalls: k.Stalls,
		Unexplained: k.Ready, Memory: k.Memory,
	}
	if paced.Data.Samples > 0 {
		r.Epochs = float64(k.Samples) / float64(paced.Data.Samples)
	}
	n := len(paced.looks)
	for i, quarter := range [][]look{paced.looks[n/4 : n/2], paced.looks[n-n/4:]} {
		r.Looks[i] = len(quarter)
		for _, l := range quarter {
			r.Resident[i] += l.resident / float64(len(quarter))
			r.Files[i] = max(r.Files[i], l.files)
		}
	}
	return r, nil
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// bench runs shardtool bench on one rank.
func (o *Options) bench(ctx context.Context, d, step time.Duration) (*report, error) {
	args := append([]string{"bench"}, o.Args...)
	cmd := exec.CommandContext(ctx, o.Binary, append(args, "--json", "--quiet", "--duration", d.String(), "--step",
		step.String())...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	r, done := new(report), make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for err, running := error(nil), true; running; {
		select {
		case <-tick.C:
			r.looks = append(r.looks, lookAt(cmd.Process.Pid)...)
		case err = <-done:
			if running = false; err != nil {
				return nil, fmt.Errorf("%s: %w\n%s", cmd, err, stderr.String())
			}
		}
	}
	if err := json.Unmarshal(out.Bytes(), r); err != nil {
		return nil, fmt.Errorf("%s: %w", cmd, err)
	}
	if len(r.Ranks) != 1 || r.Ranks[0].Steps == 0 {
		return nil, fmt.Errorf("%s: one rank was to take steps: %s", cmd, out.Bytes())
	}
	return r, nil
}

// lookAt returns what the children of a process take.
func lookAt(parent int) (all []look) {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", parent))
	for _, list := range lists {
		children, _ := os.ReadFile(list)
		for _, child := range strings.Fields(string(children)) {
			status, err := os.ReadFile("/proc/" + child + "/status")
			files, err2 := os.ReadDir("/proc/" + child + "/fd")
			if err != nil || err2 != nil {
				continue // it has ended
			}
			l := look{files: len(files)}
			for line := range strings.Lines(string(status)) {
				kib := 0.0
				if n, _ := fmt.Sscanf(line, "VmRSS: %f kB", &kib); n > 0 {
					l.resident = kib * 1024
				}
			}
			all = append(all, l)
		}
	}
	return all
}
