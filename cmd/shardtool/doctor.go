package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image/jpeg"
	"image/png"
	"io"
	"os"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
)

func newDoctor() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor SRC…|DATASET",
		Short: "Say what would go wrong, and what to do",
		Long: `Look through folders before they are packed, or through a data set, for what trips training jobs later: names that
divide into key and field in an unexpected place, duplicate keys, samples that lack a field, empty fields, JSON, JPEG
and PNG that do not decode, shards too small to stream well. Exits 1 when something was found, 3 when it is corrupt.

Exit codes:
` + exitCodes,
		Example: "  shardtool doctor photos/\n  shardtool doctor out/ --json",
		Args:    usageArgs(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			c := &checkup{kinds: map[string]*finding{}, shapes: map[string]int{}}
			if err := c.look(cmd.Context(), args); err != nil {
				return err
			}
			return c.print(cmd, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print findings as JSON")
	return cmd
}

// mostRead is the largest file that is looked into: it is read whole.
const mostRead = 256 << 20

// finding is one kind of trouble.
type finding struct {
	Kind     string   `json:"kind"`
	Count    int      `json:"count"`
	Advice   string   `json:"advice"`
	Examples []string `json:"examples"`
}

type checkup struct {
	kinds   map[string]*finding
	samples int
	shapes  map[string]int
	shapeOf map[string]string // an example of each shape
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

// look decides between folders and a data set.
func (c *checkup) look(ctx context.Context, args []string) error {
	c.shapeOf = map[string]string{}
	if len(args) == 1 {
		store, _, err := dataset(ctx, args[0])
		if err != nil {
			return err
		}
		if _, err := store.Stat(ctx, format.ManifestName); err == nil {
			return c.dataset(ctx, args[0])
		}
	}
	return c.folders(ctx, args)
}

func (c *checkup) folders(ctx context.Context, folders []string) error {
	for _, dir := range folders {
		if info, err := os.Stat(dir); err != nil {
			return err
		} else if !info.IsDir() {
			return usagef("%s is a file: give the folder that holds the samples' files, or a data set", dir)
		}
	}
	src, err := source.NewFiles(ctx, folders, source.FilesOptions{})
	if err != nil {
		return err
	}
	defer src.Close()
	keys := map[string]string{}
	var data []byte
	for {
		s, err := src.Next(ctx)
		var se *writer.SampleError
		switch {
		case errors.Is(err, io.EOF):
			if left := src.Left(); left.Hidden > 0 {
				c.found("hidden", "names that begin with a dot are left out; --include '.*' takes them", fmt.Sprintf("%d files or folders", left.Hidden))
			}
			if len(c.kinds) == 0 && c.samples == 0 {
				return &exitError{exitNotFound, fmt.Errorf("no samples in %s: nothing to look at", strings.Join(folders, ", "))}
			}
			c.shapesDiffer()
			return nil
		case errors.As(err, &se):
			c.found("unreadable", "pack stops here; mend it, --exclude it, or --on-error skip", se.Error())
			continue
		case err != nil:
			return err
		}
		if err := format.CheckKey(s.Key); err != nil {
			c.found("name", "rename it: it cannot be a key", s.Origin+": "+err.Error())
		}
		if first, twice := keys[s.Key]; twice {
			c.found("duplicate-key", "pack refuses the second: rename one, or pack the folders apart (--duplicate-keys keep allows it between shards)", first+" and "+s.Origin)
		}
		keys[s.Key] = s.Origin
		var names []string
		for _, f := range s.Fields {
			names = append(names, f.Name)
			if f.Size > mostRead {
				continue
			}
			data = slices.Grow(data[:0], int(f.Size))[:f.Size]
			if err := f.Payload.ReadInto(ctx, data); err != nil {
				c.found("unreadable", "pack stops here; mend it, --exclude it, or --on-error skip", s.Origin+": "+err.Error())
				continue
			}
			c.field(s.Origin, f.Name, data)
		}
		c.sample(s.Origin, names)
	}
}

func (c *checkup) dataset(ctx context.Context, arg string) error {
	ds, err := openDataset(ctx, arg, reader.Options{})
	if err != nil {
		return err
	}
	defer ds.Close()
	if n := ds.NumShards(); n > 1 && ds.Bytes()/uint64(n) < 16<<20 {
		c.found("tiny-shards", "each object costs a request and a listing entry: pack again with a larger --shard-size",
			fmt.Sprintf("%d shards of %s on average", n, bytesText(ds.Bytes()/uint64(n))))
	}
	for s, err := range ds.Samples(ctx, reader.Range{}) {
		if err != nil {
			c.found("corrupt", "see `shardtool verify --deep`", err.Error())
			break
		}
		var names []string
		for i := range s.Fields {
			names = append(names, string(s.Fields[i].Name))
			c.field(string(s.Key), string(s.Fields[i].Name), s.Fields[i].Data)
		}
		c.sample(string(s.Key), names)
	}
	c.shapesDiffer()
	return nil
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
		if strings.Contains(n, ".") {
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

func (c *checkup) print(cmd *cobra.Command, asJSON bool) error {
	list := []*finding{}
	for _, f := range c.kinds {
		list = append(list, f)
	}
	sort.Slice(list, func(i, j int) bool { return list[i].Kind < list[j].Kind })
	w := cmd.OutOrStdout()
	if asJSON {
		if err := printJSON(cmd, map[string]any{"samples": c.samples, "findings": list}); err != nil {
			return err
		}
	} else {
		for _, f := range list {
			fmt.Fprintf(w, "%s: %d. %s\n", f.Kind, f.Count, f.Advice)
			for _, e := range f.Examples {
				fmt.Fprintf(w, "    %s\n", e)
			}
		}
		verdict := "nothing found"
		if len(list) > 0 {
			verdict = plural(len(list), "kind") + " of trouble"
		}
		if _, err := fmt.Fprintf(w, "looked at %s: %s\n", plural(c.samples, "sample"), verdict); err != nil {
			return err
		}
	}
	if c.kinds["corrupt"] != nil {
		return &exitError{code: exitCorrupt}
	}
	if len(list) > 0 {
		return &exitError{code: exitFailed}
	}
	return nil
}
