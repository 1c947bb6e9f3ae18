package view

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/shardtool/shardtool/cmd/shardtool/internal/explain"
	"github.com/shardtool/shardtool/internal/curate/viewfile"
	"github.com/shardtool/shardtool/internal/curate/viewstore"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reshard/curate"
)

const (
	pageSize = 24
	maxPage  = 100
	// scanShards bounds the indexes that a search for keys reads for one page.
	scanShards = 64
)

func uintText(n uint64) string { return strconv.FormatUint(n, 10) }

// samplesPage is a page of samples.
type samplesPage struct {
	Source *Source
	// Show is storage, training, key, where or view. Find is the beginning of a key, an expression or
	// the name of a view.
	Show, Find string
	From       uint64 // of the samples listed, in their order
	Of         uint64 // samples in the list; 0: not known
	Count      uint64
	Cards      []card
	Note       string
	pages
}

// samples lists samples.
func (s *Server) samples(r *http.Request) (any, error) {
	q, ctx := s.query(r), r.Context()
	p := &samplesPage{
		Source: q.source(), Show: cmp.Or(q.Get("show"), "storage"), Find: strings.TrimSpace(q.Get("find")),
		From: q.number("from", 0), Count: min(max(q.number("count", pageSize), 1), maxPage),
	}
	if q.err != nil {
		return nil, q.err
	}
	switch p.Show {
	case "training":
		return p, s.training(ctx, p)
	case "key":
		return p, s.byKey(ctx, p)
	case "storage", "where", "view":
		return p, s.selected(ctx, p)
	}
	return nil, wrong("show: %q is not storage, training, key, where or view", p.Show)
}

// at is the address of the page of the list from a sample on.
func (p *samplesPage) at(from uint64) string {
	return link("/samples", "source", p.Source.Name, "show", p.Show, "find", p.Find, "from", from, "count", p.Count)
}

// selected lists samples in storage order: all, or the ones of a view or an expression.
func (s *Server) selected(ctx context.Context, p *samplesPage) error {
	sel, err := s.selection(ctx, p.Source, p.Show, p.Find)
	if err != nil {
		return err
	}
	p.Of = sel.Distinct()
	var numbers []uint64
	for i := p.From; i < p.Of && i-p.From < p.Count; i++ {
		numbers = append(numbers, sel.Number(i))
	}
	if len(numbers) == 0 && p.Of > 0 {
		return missing("there are %d samples; from: %d is beyond them", p.Of, p.From)
	}
	p.Cards = s.cards(ctx, p.Source, numbers)
	p.turn(p.From, p.Count, p.From+p.Count < p.Of, p.at)
	return nil
}

// selections is how many views and expressions are kept.
const selections = 8

// selection returns the samples that are listed. The last ones are kept.
func (s *Server) selection(ctx context.Context, of *Source, show, find string) (*viewstore.Selection, error) {
	if show == "storage" || find == "" {
		return of.Set.Selection(), nil
	}
	id := of.Name + "\x00" + show + "\x00" + find
	s.mu.Lock()
	sel := s.views[id]
	s.mu.Unlock()
	if sel != nil {
		return sel, nil
	}
	content := viewstore.Content{Digest: of.Set.Digest(), Samples: of.Set.NumSamples()}
	var v *viewfile.View
	if show == "where" {
		var err error
		if v, _, err = curate.Make(ctx, of.Set, curate.Spec{Where: []string{find}}); err != nil {
			return nil, problem{http.StatusBadRequest, err}
		}
	} else {
		file, err := viewstore.Read(ctx, of.Set.Store(), find)
		if err != nil {
			return nil, err
		}
		if v, err = file.Decode(content); err != nil {
			return nil, err
		}
	}
	sel, err := viewstore.Select(v, content)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.views) >= selections {
		clear(s.views)
	}
	s.views[id] = sel
	return sel, nil
}

// byKey lists the sample with a key, or else the samples whose keys begin so, found in the indexes
// from sample From on.
func (s *Server) byKey(ctx context.Context, p *samplesPage) error {
	if p.Find == "" {
		return s.selected(ctx, p)
	}
	ds := p.Source.Set
	numbers, err := ds.Lookup(ctx, p.Find)
	switch {
	case err == nil && p.From == 0:
		p.Of = uint64(len(numbers))
		p.Cards = s.cards(ctx, p.Source, numbers[:min(uint64(len(numbers)), p.Count)])
		return nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	numbers = nil
	if p.From >= ds.NumSamples() {
		return missing("there are %d samples; from: %d is beyond them", ds.NumSamples(), p.From)
	}
	at, err := ds.Locate(ctx, p.From)
	if err != nil {
		return err
	}
	next, shard := p.From, at.Shard
	for ; shard < min(ds.NumShards(), at.Shard+scanShards) && uint64(len(numbers)) < p.Count; shard++ {
		ix, err := ds.Index(ctx, shard)
		if err != nil {
			return err
		}
		first, err := ds.FirstSample(ctx, shard)
		if err != nil {
			return err
		}
		for i, key := range ix.Keys.All() {
			n := first + uint64(i)
			if n < next {
				continue
			}
			if uint64(len(numbers)) == p.Count {
				break
			}
			next = n + 1
			if key != "" && strings.HasPrefix(key, p.Find) && ds.Selection().Has(n) {
				numbers = append(numbers, n)
			}
		}
	}
	p.Cards = s.cards(ctx, p.Source, numbers)
	if next < ds.NumSamples() {
		p.Next = p.at(next)
	}
	p.Note = "keys that begin so, from sample number " + uintText(p.From) + " to " + uintText(next-1)
	return nil
}

// training lists samples in the order of training: batches of Count samples, in a mix from the
// place where the run begins, since what is before it may have had other sources.
func (s *Server) training(ctx context.Context, p *samplesPage) error {
	run, err := s.open(ctx)
	if err != nil {
		return err
	}
	n := p.From / p.Count
	p.From = n * p.Count
	at := reader.Place{Position: run.Begin().Position + p.From}
	if !mixed(run) {
		at, err = run.Step(ctx, n, int(p.Count))
	} else if at.Position > math.MaxInt64 {
		err = io.EOF
	}
	var step *explain.Step
	if err == nil {
		step, err = explain.Of(ctx, run, at, explain.Options{GlobalBatch: int(p.Count), World: 1, Limit: maxPage})
	}
	if errors.Is(err, io.EOF) || errors.Is(err, explain.ErrEnd) {
		return missing("the order ends before sample %d", p.From)
	}
	if err != nil {
		return err
	}
	p.Cards = s.stepCards(ctx, step.Samples)
	p.turn(p.From, p.Count, true, p.at)
	return nil
}

// stepCards reads samples of a step, each of its own source.
func (s *Server) stepCards(ctx context.Context, samples []explain.Sample) []card {
	out := make([]card, len(samples))
	bySource := map[string][]int{}
	for i := range samples {
		bySource[samples[i].Source] = append(bySource[samples[i].Source], i)
	}
	for name, places := range bySource {
		of, err := s.source(name)
		if err != nil {
			continue // a source that the mix no longer has
		}
		numbers := make([]uint64, len(places))
		for i, at := range places {
			numbers[i] = samples[at].Number
		}
		for i, c := range s.cards(ctx, of, numbers) {
			out[places[i]] = c
		}
	}
	for i := range samples {
		x := &samples[i]
		out[i].Under = "position " + uintText(x.Position) + ", epoch " + uintText(x.Epoch) + ", rank " +
			strconv.Itoa(x.Rank) + ", seed " + uintText(x.Seed)
		if x.Padding {
			out[i].Under += ", repeated to fill the batch"
		}
	}
	return out
}

// viewNames lists the views of a data set, or none where the store cannot list.
func viewNames(ctx context.Context, ds *reader.Dataset) (list []string) {
	for name, err := range viewstore.Names(ctx, ds.Store()) {
		if err != nil {
			break
		}
		list = append(list, name)
	}
	slices.Sort(list)
	return list
}
