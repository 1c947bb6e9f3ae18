package view

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/shardtool/shardtool/cmd/shardtool/internal/explain"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/order"
)

// stepPage is what a rank reads in a step.
type stepPage struct {
	Of                 *explain.Step
	World, Rank, Batch int
	pages
	Cards  []card
	From   int   // of the samples that have cards
	Listed pages // of the samples
	Rows   []row
	// Within reports that the step begins within a batch, as steps are counted from the beginning.
	Within bool
}

// row is a packed sequence, or a micro-batch, as pieces that are drawn beside one another.
type row struct {
	Number int
	Size   uint64
	Pieces []piece
}

type piece struct {
	X, Width uint64
	Text     string
	Source   string
	Number   uint64
	Other    bool // drawn in the second color, so that neighbours differ
}

// step shows what a rank reads in a step.
func (s *Server) step(r *http.Request) (any, error) {
	q, ctx := s.query(r), r.Context()
	p := &stepPage{
		Batch: q.upTo("batch", s.GlobalBatch, 1<<24), World: q.upTo("world", s.World, 1<<20),
		Rank: q.upTo("rank", s.Rank, 1<<20),
		From: q.upTo("from", 0, 1<<24),
	}
	if q.err != nil {
		return nil, q.err
	}
	if p.World < 1 || p.Rank >= p.World || p.Batch < 1 {
		return nil, wrong("rank %d of %d with a batch of %d: ranks count from 0, and a batch has a sample", p.Rank,
			p.World, p.Batch)
	}
	run, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	at, err := p.place(ctx, run, q)
	if err != nil {
		return nil, ended(err)
	}
	p.Of, err = explain.Of(ctx, run, at, explain.Options{GlobalBatch: p.Batch, World: p.World, OneRank: true,
		Rank: p.Rank})
	if err != nil {
		return nil, ended(err)
	}
	if err := p.setPages(ctx, run); err != nil {
		return nil, err
	}
	listed := p.Of.Samples[min(p.From, len(p.Of.Samples)):]
	listed = listed[:min(len(listed), pageSize)]
	p.Cards = s.stepCards(ctx, listed)
	p.draw()
	return p, nil
}

// ended makes the end of the order an answer.
func ended(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, explain.ErrEnd) {
		return missing("the run ends before this step")
	}
	if errors.Is(err, reader.ErrOptions) {
		return problem{http.StatusBadRequest, err}
	}
	return err
}

// place returns where the step begins: at the place that a link has, or by its number, or else
// where the run does.
func (p *stepPage) place(ctx context.Context, run *reader.Run, q *query) (at reader.Place, err error) {
	switch {
	case q.Get("at") != "":
		epoch, position, _ := strings.Cut(q.Get("at"), "+")
		at.Epoch, err = strconv.ParseUint(epoch, 10, 32)
		if err == nil {
			at.Position, err = strconv.ParseUint(position, 10, 63)
		}
		if err != nil {
			return at, wrong("at: %q is no epoch and position, such as 0+512", clean(q.Get("at"), 40))
		}
		return at, nil
	case q.Get("n") != "":
		if n := q.number("n", 0); q.err == nil {
			return run.Step(ctx, n, p.Batch)
		}
		return at, q.err
	}
	return run.Begin(), nil
}

// setPages makes the links to other steps, and to the other samples of this one. A run that
// continues a checkpoint with another batch size may begin within a batch, as Step counts them. The
// links follow the batches of the run.
func (p *stepPage) setPages(ctx context.Context, run *reader.Run) error {
	to := func(at reader.Place, from uint64) string {
		return link("/step", "at", fmt.Sprintf("%d+%d", at.Epoch, at.Position), "rank", p.Rank, "world", p.World,
			"batch", p.Batch, "from", from)
	}
	p.Next = to(p.Of.Next, 0)
	counted, err := run.Step(ctx, p.Of.Step, p.Batch)
	if err != nil {
		return ended(err)
	}
	p.Within = counted != p.Of.At && !mixed(run) // a mix counts from where the batch changed
	if before, ok, err := p.before(ctx, run); err != nil {
		return err
	} else if ok {
		p.Before = to(before, 0)
	}
	p.Listed.turn(uint64(p.From), pageSize, p.From+pageSize < len(p.Of.Samples),
		func(from uint64) string { return to(p.Of.At, from) })
	return nil
}

func mixed(run *reader.Run) bool { return run.Info().Names[0] != "" }

// before returns where the step before this one begins. There is none before the first, and
// none where the batch size changed.
func (p *stepPage) before(ctx context.Context, run *reader.Run) (to reader.Place, ok bool, err error) {
	begin, batch := run.Begin(), uint64(p.Batch)
	if to = p.Of.At; to != begin && !mixed(run) {
		for tail := run.Info().Tail; to.Position < batch && to.Epoch > 0; {
			to.Epoch--
			length, err := run.Length(ctx, to.Epoch)
			if err != nil {
				return to, false, err
			}
			// the first batch begins with an epoch, the last ends with it
			if to.Position == 0 && tail != order.TailWrap {
				first := uint64(0)
				if to.Epoch == begin.Epoch {
					first = begin.Position % batch
				}
				length -= first
				if tail != order.TailDrop {
					length += batch - 1
				}
				length = first + length/batch*batch
			}
			to.Position += length
		}
		if to.Position >= batch {
			to.Position -= batch
			return to, true, nil
		}
	}
	if p.Of.Step == 0 || p.Within {
		return to, false, nil
	}
	to, err = run.Step(ctx, p.Of.Step-1, p.Batch)
	return to, err == nil, nil
}

// rowsDrawn is how many units of a step are drawn.
const rowsDrawn = 64

// draw draws the units of the step as rows of pieces.
func (p *stepPage) draw() {
	if len(p.Of.Samples) == 0 || p.Of.Samples[0].Row == nil {
		return
	}
	for i := range p.Of.Samples {
		x := &p.Of.Samples[i]
		if len(p.Rows) == 0 || p.Rows[len(p.Rows)-1].Number != *x.Row {
			if len(p.Rows) == rowsDrawn {
				break
			}
			p.Rows = append(p.Rows, row{Number: *x.Row})
		}
		r := &p.Rows[len(p.Rows)-1]
		width := uint64(*x.Length)
		text := "sample " + uintText(x.Number) + ": " + uintText(width)
		if *x.Offset > 0 {
			text += " from " + strconv.FormatUint(uint64(*x.Offset), 10)
		}
		r.Pieces = append(r.Pieces, piece{X: r.Size, Width: width, Text: text, Source: x.Source, Number: x.Number,
			Other: len(r.Pieces)%2 == 1})
		r.Size += width
	}
	for i := range p.Rows {
		p.Rows[i].Size = max(p.Rows[i].Size, uint64(p.Of.Units.Size))
	}
}
