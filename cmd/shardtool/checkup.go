package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"image/jpeg"
	"image/png"
	"io"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
)

// mostRead is the largest file that is looked into: it is read whole.
const mostRead = 256 << 20

// finding is one kind of trouble.
type finding struct {
	Kind     string   `json:"kind"`
	Count    int      `json:"count"`
	Advice   string   `json:"advice"`
	Examples []string `json:"examples"`
}

// mostKeys is how many keys are remembered, some 40 bytes each; mostOrigins of them with where they come from.
const mostKeys, mostOrigins = 16 << 20, 1 << 20

// checkup is what was found so far.
type checkup struct {
	limit   int64 // samples to look at, 0 for all
	named   bool  // keys and fields are parts of names of files, rather than columns
	kinds   map[string]*finding
	samples int64
	bytes   int64
	shapes  map[string]int
	shapeOf map[string]string // an example of each shape
	seed    maphash.Seed
	keys    map[uint64]string // by hash: where a key comes from, as far as that is remembered
	buf     []byte
	mixed   *mixJSON // of a data set
}

func newCheckup(limit int64) *checkup {
	return &checkup{limit: limit, kinds: map[string]*finding{}, shapes: map[string]int{}, shapeOf: map[string]string{},
		seed: maphash.MakeSeed(), keys: map[uint64]string{}}
}

func (c *checkup) found(kind, advice, example string) {
	f := c.kinds[kind]
	if f == nil {
		f = &finding{Kind: kind, Advice: advice}
		c.kinds[kind] = f
	}
	f.Count++
	if len(f.Examples) < 5 {
		f.Examples = append(f.Examples, example)
	}
}

// done says whether enough was looked at.
func (c *checkup) done() bool { return c.limit > 0 && c.samples >= c.limit }

const pastReading = "pack stops here; mend it, leave it out, or --on-error skip"

// source looks at all samples that pack would get.
func (c *checkup) source(ctx context.Context, src writer.Source, names []string, bar *progress) error {
	for !c.done() {
		s, err := src.Next(ctx)
		var se *writer.SampleError
		switch {
		case errors.Is(err, io.EOF):
			return c.ended(src, names)
		case errors.As(err, &se) && se.LeaveOut:
			c.found("null", "--nulls skip leaves these rows out", se.Error())
			continue
		case errors.Is(err, source.ErrNulls):
			c.found("null", "pack stops here; "+nullsHelp, se.Error())
			c.samples++
			continue
		case errors.As(err, &se):
			c.found("unreadable", pastReading, se.Error())
			c.samples++
			continue
		case errors.Is(err, format.ErrCorrupt):
			c.found("corrupt", "pack stops here: fetch or make the file again", err.Error())
			return nil
		case err != nil:
			return err
		}
		if err := c.whole(ctx, &s); err != nil {
			return err
		}
		bar.set(c.bytes, plural(c.samples, "sample"))
	}
	c.shapesDiffer()
	return nil
}

// ended looks at what can be said at the end.
func (c *checkup) ended(src writer.Source, names []string) error {
	if f, ok := src.(*source.Files); ok {
		if left := f.Left(); left.Hidden > 0 {
			c.found("hidden", "names that begin with a dot are left out; --include '.*' takes them", fmt.Sprintf("%d files or folders", left.Hidden))
		}
	}
	if len(c.kinds) == 0 && c.samples == 0 {
		return &exitError{exitNotFound, fmt.Errorf("no samples in %s: nothing to look at", strings.Join(names, ", "))}
	}
	c.shapesDiffer()
	return nil
}

// whole looks at a sample with its payloads.
func (c *checkup) whole(ctx context.Context, s *writer.Sample) error {
	if err := format.CheckKey(s.Key); err != nil {
		c.found("name", "rename it: it cannot be a key", s.Origin+": "+err.Error())
	}
	c.key(s.Key, s.Origin)
	var names []string
	for _, f := range s.Fields {
		names = append(names, f.Name)
		data := f.Data
		c.bytes += max(f.Size, int64(len(f.Data)))
		if f.Payload != nil {
			if f.Size > mostRead {
				continue
			}
			c.buf = slices.Grow(c.buf[:0], int(f.Size))[:f.Size]
			data = c.buf
			if err := f.Payload.ReadInto(ctx, data); err != nil {
				if ctx.Err() != nil {
					return err
				}
				c.found("unreadable", pastReading, s.Origin+": "+err.Error())
				continue
			}
		}
		c.field(s.Origin, f.Name, data)
	}
	c.sample(s.Origin, names)
	return nil
}

// key finds one that came before.
func (c *checkup) key(key, origin string) {
	h := maphash.String(c.seed, key)
	first, twice := c.keys[h]
	switch {
	case twice:
		if first == "" {
			first = "a sample before"
		}
		c.found("duplicate-key", "pack refuses the second: rename one, choose another --key, or pack the sources apart (--duplicate-keys keep allows it between shards)",
			first+" and "+origin)
	case len(c.keys) < mostOrigins:
		c.keys[h] = origin
	case len(c.keys) < mostKeys:
		c.keys[h] = ""
	}
}

// sample looks at which fields there are.
func (c *checkup) sample(where string, names []string) {
	c.samples++
	shown := slices.Clone(names)
	for i, n := range shown {
		if n == "" || strings.ContainsAny(n, " \n") {
			shown[i] = strconv.Quote(n)
		}
	}
	shape := strings.Join(shown, " ")
	c.shapes[shape]++
	if c.shapeOf[shape] == "" {
		c.shapeOf[shape] = where
	}
	for _, n := range names {
		if c.named && strings.Contains(n, ".") {
			c.found("dotted-name", "everything behind the first dot is the field: replace other dots if they belong to the key", where+" has the field "+n)
		}
		if n != strings.ToLower(n) {
			c.found("upper-case-field", "WebDataset lower-cases fields, others do not: rename to lower case", where+" has the field "+n)
		}
	}
}

// shapesDiffer reports samples whose fields are not those of most.
func (c *checkup) shapesDiffer() {
	if len(c.shapes) < 2 {
		return
	}
	shapes := make([]string, 0, len(c.shapes))
	for s := range c.shapes {
		shapes = append(shapes, s)
	}
	sort.Slice(shapes, func(i, j int) bool {
		if a, b := c.shapes[shapes[i]], c.shapes[shapes[j]]; a != b {
			return a > b
		}
		return shapes[i] < shapes[j]
	})
	for _, s := range shapes[1:] {
		c.found("fields-differ", "a training step that expects one set of fields fails on the other: add what is missing, or pack apart",
			fmt.Sprintf("%d with [%s], most with [%s]; the first: %s", c.shapes[s], s, shapes[0], c.shapeOf[s]))
	}
}

// field looks into a payload as far as its kind is known.
func (c *checkup) field(where, name string, data []byte) {
	what := format.JoinName(where, name)
	if strings.HasSuffix(where, "."+name) {
		what = where
	}
	if len(data) == 0 {
		c.found("empty", "an empty file is rarely meant: fill it or leave it out", what)
		return
	}
	kind := name[strings.LastIndexByte(name, '.')+1:]
	var err error
	switch strings.ToLower(kind) {
	case "json":
		if !json.Valid(data) {
			err = errors.New("not valid JSON")
		}
	case "jpg", "jpeg":
		_, err = jpeg.DecodeConfig(bytes.NewReader(data))
		if err == nil && !bytes.HasSuffix(bytes.TrimRight(data, "\x00"), []byte{0xff, 0xd9}) {
			err = errors.New("no end marker: the file is cut")
		}
	case "png":
		_, err = png.DecodeConfig(bytes.NewReader(data))
		if err == nil && !bytes.Contains(data[max(0, len(data)-64):], []byte("IEND")) {
			err = errors.New("no IEND: the file is cut")
		}
	}
	if err != nil {
		c.found("undecodable", "training stops or skips here: mend the file or leave it out", fmt.Sprintf("%s: %v", what, err))
	}
}
