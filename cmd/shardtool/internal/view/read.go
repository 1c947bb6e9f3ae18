package view

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/shardtool/shardtool/cmd/shardtool/internal/inspect"
	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/internal/sys/plain"
	"github.com/shardtool/shardtool/reader"
)

const (
	// maxSample is the size up to which a sample is read whole; of a larger one, only the beginning of
	// each field.
	maxSample = 2 << 20
	// readers is how many samples of a page are read concurrently.
	readers = 16
)

// card is a sample as a page shows it.
type card struct {
	Source  string
	Number  uint64
	Key     string
	Removed bool
	Fields  []field
	Attrs   []attr
	Shard   string
	Block   int
	Offset  int64
	Error   string // why its fields are not shown, as a page says it
	err     error  // the same as a value
	// Under is a line about the sample on the page of a step.
	Under string
}

type field struct {
	Name   string
	Size   uint64
	Source string
	Number uint64
	look
}

type attr struct {
	Name  string
	Value any
}

// part is a data set that fields of samples are read from: a source's own, or one of its layers.
type part struct {
	set    *reader.Dataset
	fields map[string]bool
}

// parts returns the data sets that the samples of a source are read from, its own first.
func (of *Source) parts() []part {
	all := []part{{of.Set, map[string]bool{}}}
	for _, layer := range of.Set.Layers() {
		all = append(all, part{layer, map[string]bool{}})
	}
	for _, f := range of.Set.Fields() {
		from := 0
		for i, p := range all {
			in := p.set.Info()
			has := slices.ContainsFunc(in.Fields, func(t format.FieldTotal) bool { return t.Name == f.Name })
			if has && (from == 0 || slices.Contains(in.Replaces, f.Name)) { // others do not have it, or give way
				from = i
			}
		}
		all[from].fields[f.Name] = true
	}
	return all
}

// entry is a sample that is being read for a page.
type entry struct {
	card
	at    reader.Location
	parts []part
	from  []int // number of the part of each of card.Fields
}

// cards reads the samples of a page, in order: the indexes of their shards, then each block that
// has some of them, once. What is wrong with a sample is shown on its card.
func (s *Server) cards(ctx context.Context, of *Source, numbers []uint64) []card {
	entries := s.entries(ctx, of, numbers)
	jobs := map[job][]*entry{}
	for i := range entries {
		x := &entries[i]
		total := uint64(0)
		for j := range x.Fields {
			total += x.Fields[j].Size
		}
		for part := range x.parts {
			if x.err != nil || x.Removed || !slices.Contains(x.from, part) {
				continue
			}
			id := job{part: part, shard: x.at.Shard, block: x.at.Block}
			if total > maxSample {
				id = job{part: part, large: i + 1}
			}
			jobs[id] = append(jobs[id], x)
		}
	}
	var g errgroup.Group
	g.SetLimit(readers)
	var mu sync.Mutex // of the errors: jobs of several parts may have one sample
	for id, of := range jobs {
		g.Go(func() error {
			if err := s.fill(ctx, id, of); err != nil {
				mu.Lock()
				defer mu.Unlock()
				for _, x := range of {
					x.err = cmp.Or(x.err, err)
				}
			}
			return nil
		})
	}
	_ = g.Wait() // errors are on the cards
	out := make([]card, len(entries))
	for i := range entries {
		x := &entries[i]
		x.Fields = slices.DeleteFunc(x.Fields, func(f field) bool { return f.Kind == "" })
		slices.SortStableFunc(x.Fields, func(a, b field) int { return cmp.Compare(rank(a.Kind), rank(b.Kind)) })
		if x.err != nil {
			x.Error = plain.Text(x.err.Error())
		}
		out[i] = x.card
	}
	return out
}

// entries fills in what the indexes tell about samples. Each index is read once.
func (s *Server) entries(ctx context.Context, of *Source, numbers []uint64) []entry {
	out, parts := make([]entry, len(numbers)), of.parts()
	var g errgroup.Group
	g.SetLimit(readers)
	for i, n := range numbers {
		g.Go(func() error {
			x := &out[i]
			x.Source, x.Number, x.parts = of.Name, n, parts
			x.at, x.err = of.Set.Locate(ctx, n)
			return nil
		})
	}
	_ = g.Wait() // errors are in the entries
	byShard := map[int][]*entry{}
	for i := range out {
		if x := &out[i]; x.err == nil {
			byShard[x.at.Shard] = append(byShard[x.at.Shard], x)
		}
	}
	for shard, of := range byShard {
		g.Go(func() error {
			slices.SortFunc(of, func(a, b *entry) int { return cmp.Compare(a.Number, b.Number) })
			for i := range parts {
				if err := indexed(ctx, i, &parts[i], shard, of); err != nil {
					for _, x := range of {
						x.err = err
					}
					break
				}
			}
			return nil
		})
	}
	_ = g.Wait()
	return out
}

// indexed adds what the index of a shard of a part tells to samples of it, which ascend.
func indexed(ctx context.Context, number int, p *part, shard int, of []*entry) error {
	if number > 0 && (len(p.fields) == 0 || shard >= p.set.NumShards()) {
		return nil
	}
	info, err := p.set.Shard(ctx, shard)
	if err != nil {
		return err
	}
	first, err := p.set.FirstSample(ctx, shard)
	if err != nil {
		return err
	}
	ix, err := p.set.Index(ctx, shard)
	if err != nil {
		return err
	}
	at := make([]int, len(of))
	for i, x := range of {
		at[i] = int(x.Number - first)
	}
	cursors := ix.Cursors(at)
	for i, x := range of {
		if number == 0 {
			x.Shard, x.Block = info.Name, x.at.Block
			x.Offset, _ = inspect.Block(ix.Rows, x.Block)
			x.Key, x.Removed = ix.Keys.At(at[i]), p.set.Removed(x.Number)
			for a := range ix.Attrs {
				if v, ok := ix.Attrs[a].At(at[i]); ok {
					x.Attrs = append(x.Attrs, attr{v.Name, valueOf(v)})
				}
			}
		} else if p.set.Removed(x.Number) { // the layer has nothing for it
			continue
		}
		for _, f := range cursors[i].Fields(nil) {
			if p.fields[f.Name] {
				x.Fields = append(x.Fields, field{Name: f.Name, Size: uint64(f.Size), Source: x.Source,
					Number: x.Number})
				x.from = append(x.from, number)
			}
		}
	}
	return nil
}

func valueOf(v format.AttrValue) any {
	v.Label = clean(v.Label, 200)
	return metadata.Value(v)
}

// job is what is read at a time: the samples of a page in a block of a part, or one large sample.
type job struct {
	part, shard, block int
	large              int // 1 + the place of the sample on the page
}

// fill reads the fields that samples have in a part.
func (s *Server) fill(ctx context.Context, id job, of []*entry) error {
	set := of[0].parts[id.part].set
	numbers := make([]uint64, len(of))
	for i, x := range of {
		numbers[i] = x.Number
	}
	var whole map[uint64]*reader.Sample // none: of each field, the beginning is read
	var err error
	if id.large == 0 {
		if whole, err = s.recent.read(ctx, set, numbers); err != nil {
			return err
		}
	}
	for _, x := range of {
		sample := whole[x.Number]
		for i := range x.Fields {
			f := &x.Fields[i]
			if x.from[i] != id.part || sample == nil && len(whole) > 0 {
				continue
			}
			f.look, err = lookOf(f.Name, f.Size, s.Tokenizer, func(most int64) ([]byte, error) {
				if sample == nil {
					return readHead(ctx, set, x.Number, f.Name, most)
				}
				data, _ := sample.Field(f.Name)
				return data[:min(int64(len(data)), most)], nil
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// rank orders fields on a page: pictures first, bytes last.
func rank(kind string) int {
	return slices.Index([]string{"image", "video", "audio", "text", "array", "json", "hex"}, kind)
}

var errEnough = errors.New("enough")

// window is a writer that keeps the bytes [skip, skip+most) of what is written to it.
type window struct {
	skip, most int64
	to         io.Writer
}

func (p *window) Write(b []byte) (int, error) {
	n := len(b)
	skip := min(p.skip, int64(n))
	p.skip -= skip
	b = b[skip:]
	b = b[:min(int64(len(b)), p.most)]
	p.most -= int64(len(b))
	if _, err := p.to.Write(b); err != nil {
		return 0, err
	}
	if p.most == 0 {
		return n, errEnough
	}
	return n, nil
}

// readHead reads the beginning of a field.
func readHead(ctx context.Context, ds *reader.Dataset, n uint64, name string, most int64) ([]byte, error) {
	var b strings.Builder
	err := ds.Field(ctx, n, name, &window{most: most, to: &b})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return []byte(b.String()), err
}

// content is a field for http.ServeContent. It reads only what is asked for, from the front of the
// block.
type content struct {
	ctx  context.Context
	ds   *reader.Dataset
	n    uint64
	name string
	size int64
	at   int64
	pipe *io.PipeReader
	// whole is the field where it was read already.
	whole []byte
}

func (c *content) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += c.at
	case io.SeekEnd:
		offset += c.size
	}
	if offset < 0 {
		return 0, errors.New("negative offset")
	}
	if offset != c.at {
		c.Close()
	}
	c.at = offset
	return offset, nil
}

func (c *content) Read(b []byte) (int, error) {
	if c.at >= c.size {
		return 0, io.EOF
	}
	if c.pipe == nil {
		r, w := io.Pipe()
		c.pipe = r
		to := &window{skip: c.at, most: math.MaxInt64, to: w}
		go func() { _ = w.CloseWithError(c.ds.Field(c.ctx, c.n, c.name, to)) }()
	}
	n, err := c.pipe.Read(b)
	c.at += int64(n)
	return n, err
}

// Close ends the reading.
func (c *content) Close() {
	if c.pipe != nil {
		c.pipe.Close()
		c.pipe = nil
	}
}

// head returns the beginning of the field.
func (c *content) head(most int64) ([]byte, error) {
	if c.whole != nil {
		return c.whole[:min(int64(len(c.whole)), most)], nil
	}
	data, err := readHead(c.ctx, c.ds, c.n, c.name, most)
	if err == nil && int64(len(data)) == c.size {
		c.whole = data
	}
	return data, err
}

// wanted is the field that a request names.
func (s *Server) wanted(ctx context.Context, q *query) (*content, error) {
	of, n := q.source(), q.number("n", 0)
	if q.err != nil {
		return nil, q.err
	}
	x := &s.entries(ctx, of, []uint64{n})[0]
	if x.err != nil {
		return nil, x.err
	}
	if x.Removed {
		return nil, missing("sample number %d was removed", n)
	}
	i := slices.IndexFunc(x.Fields, func(f field) bool { return f.Name == q.Get("name") })
	if i < 0 {
		return nil, missing("sample number %d has no field %q", n, q.Get("name"))
	}
	c := &content{ctx: ctx, ds: x.parts[x.from[i]].set, n: n, name: x.Fields[i].Name, size: int64(x.Fields[i].Size)}
	if sample := s.recent.get(c.ds, n); sample != nil {
		c.whole, _ = sample.Field(c.name)
	}
	return c, nil
}

// field serves the bytes of a field: images, sounds and videos for the page, everything else as a
// file to save.
func (s *Server) field(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	q := s.query(r)
	c, err := s.wanted(ctx, q)
	var l look
	if err == nil {
		defer c.Close()
		l, err = lookOf(c.name, uint64(c.size), nil, c.head)
	}
	if err != nil {
		http.Error(w, plain.Text(err.Error()), statusOf(err))
		return
	}
	h := w.Header()
	h.Set("Content-Security-Policy", "default-src 'none'; sandbox")
	h.Set("Content-Type", "application/octet-stream")
	if l.Type != "" && !q.Has("save") {
		h.Set("Content-Type", l.Type)
	} else {
		h.Set("Content-Disposition", `attachment; filename*=UTF-8''`+url.PathEscape(fileName(c.n, c.name)))
	}
	var body io.ReadSeeker = c
	if c.whole != nil {
		body = bytes.NewReader(c.whole)
	}
	http.ServeContent(w, r, "", time.Time{}, body)
}

// fileName is a name for a saved field without anything that leads elsewhere.
func fileName(n uint64, name string) string {
	safe := strings.Map(func(r rune) rune {
		if r == '.' || r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '_'
	}, name)
	return "sample-" + uintText(n) + "." + strings.TrimLeft(safe, ".")
}

// heat serves the heat map of an array.
func (s *Server) heat(w http.ResponseWriter, r *http.Request) {
	c, err := s.wanted(r.Context(), s.query(r))
	var head []byte
	if err == nil {
		head, err = c.head(heatBytes)
	}
	var a *array
	if err == nil {
		a, err = readArray(head, uint64(c.size))
	}
	if err != nil {
		http.Error(w, plain.Text(err.Error()), statusOf(err))
		return
	}
	w.Header().Set("Content-Type", "image/png")
	_ = a.draw(w)
}

// heatBytes is how much of an array a heat map is drawn from.
const heatBytes = 4 << 20
