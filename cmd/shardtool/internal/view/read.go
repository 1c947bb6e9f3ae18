package view

import (
	"cmp"
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/plain"
	"github.com/shardtool/shardtool/internal/sections"
	"github.com/shardtool/shardtool/reader"
)

const (
	// maxSample is the size up to which a sample is read whole; of a larger one, only the beginning of
	// each field.
	maxSample = 2 << 20
	// readers is how many samples of a page are read concurrently.
	readers = 8
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
	Error   string // why its fields are not shown
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

// cards reads the samples of a page, in order. What is wrong with a sample is shown on its card.
func (s *Server) cards(ctx context.Context, of *Source, numbers []uint64) []card {
	out := make([]card, len(numbers))
	var g errgroup.Group
	g.SetLimit(readers)
	for i, n := range numbers {
		g.Go(func() error {
			out[i] = s.card(ctx, of, n)
			return nil
		})
	}
	_ = g.Wait() // errors are on the cards
	return out
}

// card reads one sample.
func (s *Server) card(ctx context.Context, of *Source, n uint64) card {
	c := card{Source: of.Name, Number: n}
	sizes, err := s.entry(ctx, of, n, &c)
	if err == nil && !c.Removed {
		err = s.fields(ctx, of, n, sizes, &c)
	}
	if err != nil {
		c.Error = plain.Text(err.Error())
	}
	return c
}

// entry fills in what the index of the shard tells.
func (s *Server) entry(ctx context.Context, of *Source, n uint64, c *card) (sizes []format.FieldSize, err error) {
	at, err := of.Set.Locate(ctx, n)
	if err != nil {
		return nil, err
	}
	info, err := of.Set.Shard(ctx, at.Shard)
	if err != nil {
		return nil, err
	}
	c.Shard, c.Block = info.Name, at.Block
	first, err := of.Set.FirstSample(ctx, at.Shard)
	if err != nil {
		return nil, err
	}
	ix, err := of.Set.Index(ctx, at.Shard)
	if err != nil {
		return nil, err
	}
	i := int(n - first)
	c.Offset = offset(ix, at.Block)
	c.Key, c.Removed = ix.Keys.At(i), of.Set.Removed(n)
	for a := range ix.Attrs {
		if v, ok := ix.Attrs[a].At(i); ok {
			c.Attrs = append(c.Attrs, attr{v.Name, valueOf(v)})
		}
	}
	return ix.Cursors([]int{i})[0].Fields(nil), nil
}

// offset returns where a block begins in its shard.
func offset(ix *sections.ShardIndex, block int) (at int64) {
	i := -1
	for _, r := range ix.Rows {
		if r.Samples > 0 {
			i++
		}
		if i == block {
			break
		}
		at += int64(r.Stored)
	}
	return at
}

func valueOf(v format.AttrValue) any {
	switch v.Kind {
	case format.AttrInteger:
		return v.Integer
	case format.AttrNumber:
		return v.Number
	}
	return clean(v.Label, 200)
}

// fields reads what is shown of the fields.
func (s *Server) fields(ctx context.Context, of *Source, n uint64, sizes []format.FieldSize, c *card) error {
	total := uint64(0)
	for _, f := range sizes {
		total += uint64(f.Size)
	}
	head := func(name string) ([]byte, error) { return readHead(ctx, of.Set, n, name, headSize) }
	if total <= maxSample {
		sample, err := of.Set.Get(ctx, n)
		if err != nil {
			return err
		}
		head = func(name string) ([]byte, error) {
			data, _ := sample.Field(name)
			return data[:min(len(data), headSize)], nil
		}
	}
	for _, f := range sizes {
		data, err := head(f.Name)
		if err != nil {
			return err
		}
		c.Fields = append(c.Fields, field{Name: f.Name, Size: uint64(f.Size), Source: of.Name, Number: n, look: lookAt(f.Name, data, uint64(f.Size), s.Tokenizer)})
	}
	slices.SortStableFunc(c.Fields, func(a, b field) int { return cmp.Compare(rank(a.Kind), rank(b.Kind)) })
	return nil
}

// rank orders fields on a page: pictures first, bytes last.
func rank(kind string) int {
	return slices.Index([]string{"image", "video", "audio", "text", "array", "json", "hex"}, kind)
}

var errEnough = errors.New("enough")

// part is a writer that keeps the bytes [skip, skip+most) of what is written to it.
type part struct {
	skip, most int64
	to         io.Writer
}

func (p *part) Write(b []byte) (int, error) {
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
	err := ds.Field(ctx, n, name, &part{most: most, to: &b})
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
		to := &part{skip: c.at, most: math.MaxInt64, to: w}
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

// wanted is the field that a request names.
func (s *Server) wanted(ctx context.Context, q url.Values) (of *Source, n uint64, f format.FieldSize, err error) {
	if of, err = s.source(q); err != nil {
		return
	}
	if n, err = number(q, "n", 0); err != nil {
		return
	}
	var c card
	sizes, err := s.entry(ctx, of, n, &c)
	if err != nil {
		return
	}
	if c.Removed {
		return of, n, f, missing("sample number %d was removed", n)
	}
	i := slices.IndexFunc(sizes, func(f format.FieldSize) bool { return f.Name == q.Get("name") })
	if i < 0 {
		return of, n, f, missing("sample number %d has no field %q", n, q.Get("name"))
	}
	return of, n, sizes[i], nil
}

// field serves the bytes of a field: images, sounds and videos for the page, everything else as a
// file to save.
func (s *Server) field(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	of, n, f, err := s.wanted(ctx, r.URL.Query())
	var head []byte
	if err == nil {
		head, err = readHead(ctx, of.Set, n, f.Name, headSize)
	}
	if err != nil {
		http.Error(w, plain.Text(err.Error()), statusOf(err))
		return
	}
	h := w.Header()
	h.Set("Content-Security-Policy", "default-src 'none'; sandbox")
	h.Set("Content-Type", "application/octet-stream")
	if l := lookAt(f.Name, head, uint64(f.Size), nil); l.Type != "" && !r.URL.Query().Has("save") {
		h.Set("Content-Type", l.Type)
	} else {
		h.Set("Content-Disposition", `attachment; filename*=UTF-8''`+url.PathEscape(fileName(n, f.Name)))
	}
	c := &content{ctx: ctx, ds: of.Set, n: n, name: f.Name, size: f.Size}
	defer c.Close()
	http.ServeContent(w, r, "", time.Time{}, c)
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
	ctx := r.Context()
	of, n, f, err := s.wanted(ctx, r.URL.Query())
	var head []byte
	if err == nil {
		head, err = readHead(ctx, of.Set, n, f.Name, heatBytes)
	}
	var a *array
	if err == nil {
		a, err = readArray(head, uint64(f.Size))
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
