package view

import (
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/order"
)

// samplePage is one sample.
type samplePage struct {
	Source *Source
	Card   card
	Of     uint64
	Epoch  uint64
	Places []where
	Note   string // why there are none
	pages
}

// where is a place of a sample in an epoch.
type where struct {
	Position, Step uint64
	Rank           int
}

// sample shows one sample.
func (s *Server) sample(r *http.Request) (any, error) {
	q, ctx := s.query(r), r.Context()
	of, n := q.source(), q.number("n", 0)
	if q.err != nil {
		return nil, q.err
	}
	p := &samplePage{Source: of, Of: of.Set.NumSamples()}
	if n >= p.Of {
		return nil, missing("there is no sample number %d: the data set has %d, counted from 0", n, p.Of)
	}
	p.Card = s.cards(ctx, of, []uint64{n})[0]
	p.turn(n, 1, n+1 < p.Of, func(n uint64) string { return link("/sample", "source", of.Name, "n", n) })
	if p.Epoch = q.number("epoch", 0); q.err != nil || q.Get("epoch") == "" {
		return p, q.err
	}
	return p, s.find(ctx, p, n)
}

const (
	// maxWalk bounds the positions that a search for a sample walks over, which takes under a second.
	maxWalk = 4 << 20
	// maxPlaces is how many places of a sample are listed.
	maxPlaces = 20
)

// find walks through an epoch of the run for the places of a sample.
func (s *Server) find(ctx context.Context, p *samplePage, n uint64) error {
	run, err := s.open(ctx)
	if err != nil {
		return err
	}
	length, err := run.Length(ctx, p.Epoch)
	if err != nil {
		return ended(err)
	}
	if length > maxWalk {
		p.Note = "an epoch has more than " + uintText(maxWalk) + " positions: it is not searched"
		return nil
	}
	at := reader.Place{Epoch: p.Epoch}
	mixed := p.Source.Name != ""
	if mixed { // positions count over all epochs
		at = reader.Place{Position: p.Epoch * length}
	}
	cursor, err := run.Seek(ctx, at, order.Split{GlobalBatch: s.GlobalBatch, World: 1})
	if err != nil {
		return ended(err)
	}
	names := run.Info().Names
	var refs []order.Ref
	for walked := uint64(0); walked < length; {
		var b order.Batch
		if refs, b, err = cursor.Next(refs[:0]); err != nil {
			break
		}
		if !mixed && b.Epoch != p.Epoch {
			break
		}
		walked += uint64(b.Global)
		var ranks []int32 // of the entries
		for i := range refs {
			if r := &refs[i]; r.Number != n || r.Padding || names[r.Source] != p.Source.Name ||
				len(p.Places) == maxPlaces {
				continue
			}
			entry := i
			if b.Cuts != nil {
				entry = int(b.Cuts[i].Unit)
			}
			step, _, err := run.Number(ctx, reader.Place{Epoch: b.Epoch, Position: b.Position}, s.GlobalBatch)
			if err != nil {
				return err
			}
			if ranks == nil {
				if ranks, err = run.Ranks(refs, &b, s.World); err != nil {
					return err
				}
			}
			p.Places = append(p.Places, where{b.Position + uint64(entry), step, int(ranks[entry])})
		}
	}
	if len(p.Places) == 0 {
		p.Note = "it is not in this epoch"
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return err
}
