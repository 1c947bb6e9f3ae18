package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/shardtool/shardtool/internal/stats"
	"github.com/shardtool/shardtool/reader"
)

// errEnd: the stream ended before a second batch.
var errEnd = errors.New("the stream gave no second batch")

// Opener opens a stream over a data set, as Dataset.Stream does, or over a mix.
type Opener func(ctx context.Context, o reader.StreamOptions) (*reader.Stream, error)

// Measure runs one rank: it reads batch after batch, with a step that only takes time, and measures
// the waits. began is the start of the process. Measure calls opened with the stream before it
// reads. When ctx ends, it returns what was measured until then.
func Measure(ctx context.Context, open Opener, j Job, began time.Time, opened func(*reader.Stream)) (*Rank, error) {
	s, err := open(ctx, j.Setting.Options(j.Rank))
	if err != nil {
		return nil, err
	}
	defer s.Close()
	opened(s)
	if _, err := s.Next(ctx); err != nil {
		return nil, err
	}
	start := time.Now()
	cpu := processorSeconds()
	first := s.Stats()
	r := &Rank{Rank: j.Rank, First: start.Sub(began).Seconds(), FirstWait: first.Wait.Seconds(), FirstStalls: seconds(first.Stalls), Memory: s.Info().Memory}
	m := &meter{s: s, line: newTimeline(j.Duration), start: start, last: first}
	waits, err := m.run(ctx, j)
	if err != nil {
		return nil, err
	}
	if waits.n == 0 {
		return nil, fmt.Errorf("%w: give a longer --duration", errEnd)
	}
	end := s.Stats()
	r.Elapsed = time.Since(start).Seconds()
	r.Samples, r.Bytes = end.Samples-first.Samples, end.Bytes-first.Bytes
	for i, of := range end.Sources {
		was := first.Sources[i]
		r.Sources = append(r.Sources, SourceRank{of.Name, of.Samples - was.Samples, of.Bytes - was.Bytes})
	}
	r.Stalls = seconds(end.Stalls.Sub(first.Stalls))
	r.Stored, r.Evicted, r.Held = end.StoredBytes-first.StoredBytes, end.Evicted, end.Held
	r.Requests, r.Depth, r.Decisions = end.Requests, end.Depth, end.Decisions
	r.CPU, r.Resident = processorSeconds()-cpu, residentMost()
	r.waits(waits)
	r.Step = (r.Elapsed - r.Wait) / float64(r.Steps+1)
	r.Line = *m.line
	return r, nil
}

// meter measures a rank.
type meter struct {
	s     *reader.Stream
	start time.Time
	last  stats.Stream
	late  time.Duration // excess of the last step over Job.Step

	mu   sync.Mutex
	line *Timeline
}

// run returns the waits of all batches after the first. The step of the first batch begins at once.
func (m *meter) run(ctx context.Context, j Job) (*waitCounts, error) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { m.look(done) })
	defer func() {
		close(done)
		wg.Wait()
	}()
	waits, told := new(waitCounts), m.start
	asked := m.step(ctx, m.start, j.Step)
	m.mu.Lock()
	m.line.spread(0, m.at(asked), func(b *Bucket, s, _ float64) { b.Step += s })
	m.mu.Unlock()
	for {
		_, err := m.s.Next(ctx)
		came := time.Now()
		if ctx.Err() != nil {
			return waits, nil
		}
		if err != nil {
			return waits, err
		}
		waits.add(came.Sub(asked).Seconds())
		now := m.s.Stats()
		done := m.step(ctx, came, j.Step)
		m.mu.Lock()
		m.line.batch(m.at(asked), m.at(came), m.at(done), now.Stalls.Sub(m.last.Stalls), int(now.Samples-m.last.Samples), now.Bytes-m.last.Bytes)
		m.mu.Unlock()
		m.last, asked = now, done
		if j.Tell != nil && done.Sub(told) >= tellEvery {
			told = done
			j.Tell(j.Rank, j.done(waits.n, done.Sub(m.start)))
		}
		if ctx.Err() != nil || (j.Batches > 0 && waits.n >= uint64(j.Batches)) || (j.Batches == 0 && done.Sub(m.start) >= j.Duration) {
			return waits, nil
		}
	}
}

func (m *meter) at(t time.Time) float64 { return t.Sub(m.start).Seconds() }

// tellEvery is the interval of the reports of a rank that is watched.
const tellEvery = 200 * time.Millisecond

// lookEvery keeps the counting below a thousandth of a processor, with several counts in each
// bucket of a run of ten seconds. The resources of the process are read once per usageEvery looks.
const (
	lookEvery  = 10 * time.Millisecond
	usageEvery = 50
)

func (m *meter) look(done <-chan struct{}) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case now := <-tick.C:
			seen := Bucket{Looks: 1}
			pieces := m.s.Stats().Pieces
			seen.Queued, seen.Reading, seen.Paused, seen.Decoding = float64(pieces.Queued), float64(pieces.Reading), float64(pieces.Paused), float64(pieces.Decoding)
			if n%usageEvery == 0 {
				seen.Resident, seen.Goroutines, seen.Files = resident(), runtime.NumGoroutine(), openFiles()
			}
			m.mu.Lock()
			m.line.bucket(m.at(now)).join(&seen)
			m.mu.Unlock()
		case <-done:
			return
		}
	}
}

// step waits until a step has passed since the batch arrived, and returns the time of its end. A
// timer that fires late shortens the following steps: otherwise, on a busy host, short steps would
// take twice as long.
func (m *meter) step(ctx context.Context, came time.Time, step time.Duration) time.Time {
	now := time.Now()
	due := came.Add(step - m.late)
	left := due.Sub(now)
	if left > 0 {
		wait := time.NewTimer(left)
		defer wait.Stop()
		select {
		case <-wait.C:
		case <-ctx.Done():
		}
		now = time.Now()
	}
	if step > 0 {
		m.late = min(max(now.Sub(due), 0), step)
	}
	return now
}
