package tokens_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source/tokens"
)

// slowly gives documents whose payloads take their time, or as long as they are allowed to.
type slowly struct {
	documents
	takes    time.Duration
	now      atomic.Int64
	most     atomic.Int64
	blocking atomic.Bool
}

func (s *slowly) Next(ctx context.Context) (writer.Sample, error) {
	out, err := s.documents.Next(ctx)
	for i, f := range out.Fields {
		if l, ok := f.Payload.(late); ok {
			out.Fields[i].Payload = &slowPayload{l, s}
		}
	}
	return out, err
}

type slowPayload struct {
	late
	of *slowly
}

func (p *slowPayload) ReadInto(ctx context.Context, b []byte) error {
	n := p.of.now.Add(1)
	for m := p.of.most.Load(); n > m && !p.of.most.CompareAndSwap(m, n); m = p.of.most.Load() {
	}
	defer p.of.now.Add(-1)
	if p.of.blocking.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	time.Sleep(p.of.takes)
	return p.late.ReadInto(ctx, b)
}

// TestFar: documents that take long are read many at a time; samples, errors and cursors are those
// of documents that do not.
func TestFar(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(7, 8))
		list := randomDocuments(rng, 400, 30)
		opt := tokens.JoinOptions{Length: 50, Separator: []int64{1}}
		type step struct {
			got
			cursor string
			failed bool
		}
		steps := func(j writer.Splitter) (out []step) {
			for {
				cursor := j.Cursor()
				s, err := j.Next(t.Context())
				var se *writer.SampleError
				if errors.As(err, &se) {
					out = append(out, step{got{key: se.Key}, cursor, true})
					continue
				}
				if err != nil {
					return out
				}
				g, err := read(t, s)
				if err != nil {
					t.Fatal(err)
				}
				out = append(out, step{g, cursor, false})
			}
		}
		want := steps(join(t, newDocuments(list), opt))
		// All documents are payloads, or every third is, with documents in memory between them.
		for what, src := range map[string]writer.Source{
			"mixed":    &slowly{documents: *newDocuments(list), takes: 4 * time.Millisecond},
			"payloads": &slowly{documents: documents{list: list, end: len(list), later: true}, takes: 4 * time.Millisecond},
		} {
			j := join(t, src, opt)
			for range 2 {
				got := steps(j)
				if !slices.EqualFunc(got, want, func(a, b step) bool { return a.cursor == b.cursor && a.failed == b.failed && same(a.got, b.got) }) {
					t.Errorf("%s: %d steps are not the %d of near documents", what, len(got), len(want))
				}
				if !tokens.Far(j) {
					t.Errorf("%s: not far", what)
				}
				if err := j.Seek(t.Context(), want[0].cursor); err != nil {
					t.Fatal(err)
				}
			}
			if most := src.(*slowly).most.Load(); what == "payloads" && most < 8 || most > 64 {
				t.Errorf("%s: %d at a time", what, most)
			}
			if err := j.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestFarEnds: a job that is stopped, and a source that is closed, do not wait for what nobody will
// bring.
func TestFarEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		list := make([]document, 200)
		for i := range list {
			list[i] = document{key: string(rune('a' + i%26)), ids: upTo(0, 10)}
		}
		src := &slowly{documents: documents{list: list, end: len(list), later: true}, takes: 4 * time.Millisecond}
		j := join(t, src, tokens.JoinOptions{Length: 10})
		for !tokens.Far(j) {
			if _, err := j.Next(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		src.blocking.Store(true)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		for {
			if _, err := j.Next(ctx); err != nil {
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
				break
			}
		}
		src.blocking.Store(false)
		if err := j.Seek(t.Context(), "0:doc 0"); err != nil {
			t.Fatal(err)
		}
		if got := whole(t, j); len(got) != len(list) {
			t.Errorf("%d samples", len(got))
		}
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	})
}
