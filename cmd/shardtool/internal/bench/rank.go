package bench

import (
	"context"
	"errors"
	"time"

	"github.com/shardtool/shardtool/reader"
)

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
	m := &meter{s: s, start: start}
	waits, err := m.run(ctx, j)
	if err != nil {
		return nil, err
	}
	if waits.n == 0 {
		return nil, errors.New("the stream gave no second batch: give a longer --duration")
	}
	end := s.Stats()
	r := &Rank{
		Work{
			Rank: j.Rank, First: start.Sub(began).Seconds(), FirstWait: first.Wait.Seconds(),
			FirstStalls: seconds(first.Stalls),
			Elapsed:     time.Since(start).Seconds(), Samples: end.Samples - first.Samples,
			Bytes:  end.Bytes - first.Bytes,
			Stored: end.StoredBytes - first.StoredBytes, Held: end.Held, CPU: processorSeconds() - cpu,
		},
		Waits{Stalls: seconds(end.Stalls.Sub(first.Stalls))},
		Use{Memory: s.Info().Memory, Resident: residentMost(), Evicted: end.Evicted, Requests: end.Requests,
			Depth: end.Depth, Decisions: end.Decisions},
	}
	for i, of := range end.Sources {
		was := first.Sources[i]
		r.Work.Sources = append(r.Work.Sources, SourceRank{of.Name, of.Samples - was.Samples, of.Bytes - was.Bytes})
	}
	r.count(waits)
	r.Waits.Step = (r.Work.Elapsed - r.Work.Wait) / float64(r.Work.Steps+1)
	return r, nil
}

// meter measures a rank.
type meter struct {
	s     *reader.Stream
	start time.Time
	late  time.Duration // excess of the last step over Job.Step
}

// run returns the waits of all batches after the first. The step of the first batch begins at once.
func (m *meter) run(ctx context.Context, j Job) (*waitCounts, error) {
	waits, told := new(waitCounts), m.start
	asked := m.step(ctx, m.start, j.Step)
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
		asked = m.step(ctx, came, j.Step)
		if j.Tell != nil && asked.Sub(told) >= tellEvery {
			told = asked
			j.Tell(j.Rank, j.done(waits.n, asked.Sub(m.start)))
		}
		if ctx.Err() != nil || (j.Batches > 0 && waits.n >= uint64(j.Batches)) ||
			(j.Batches == 0 && asked.Sub(m.start) >= j.Duration) {
			return waits, nil
		}
	}
}

// tellEvery is the interval of the reports of a rank that is watched.
const tellEvery = 200 * time.Millisecond

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
