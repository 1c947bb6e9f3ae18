// Package mds describes the data sets of MosaicML Streaming, version 2: their indexes, the columns
// of a shard, and how values are encoded. The package mosaicml-streaming 0.13 defines the format.
package mds

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path"
	"slices"
	"strings"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore"
)

// IndexName is the name of an index.
const IndexName = "index.json"

// Bounds of what is read at once.
const (
	maxIndex = 512 << 20
	// MaxConfig bounds the description of columns in a shard, and maxColumns their number.
	MaxConfig  = 16 << 20
	maxColumns = 1 << 16
)

var (
	// ErrOther means that the shards of an index have another format.
	ErrOther = errors.New("its shards are not in the format mds")
	// ErrNone means that an index.json is no index of MosaicML Streaming.
	ErrNone = errors.New("it is not an index of MosaicML Streaming")
)

// File is a file of a shard.
type File struct {
	Name   string            `json:"basename"` // may have folders, in merged indexes
	Size   int64             `json:"bytes"`
	Hashes map[string]string `json:"hashes"`
}

// Shard is what an index states of a shard. Shards with the same columns share them.
type Shard struct {
	Raw     File
	Zip     File // its Name is empty where the shard is not compressed
	Samples int64
	Columns []Column
}

// Column is a column of a shard.
type Column struct {
	Name string
	Encoding
}

// config describes columns, in indexes and in the shards themselves.
type config struct {
	Names     []string `json:"column_names"`
	Encodings []string `json:"column_encodings"`
	Sizes     []*int64 `json:"column_sizes"`
}

// columns checks the description.
func (c *config) columns() ([]Column, error) {
	n := len(c.Names)
	if n == 0 || n > maxColumns || len(c.Encodings) != n || len(c.Sizes) != n {
		return nil, corruptf("%d names, %d encodings and %d sizes of columns are stated: give each column one of all, of at most %d columns", n, len(c.Encodings), len(c.Sizes), maxColumns)
	}
	seen := map[string]bool{}
	out := make([]Column, n)
	for i, name := range c.Names {
		if seen[name] {
			return nil, corruptf("two columns are called %q", name)
		}
		seen[name] = true
		e, err := parseEncoding(c.Encodings[i])
		if err != nil {
			return nil, fmt.Errorf("column %q: %w", name, err)
		}
		stated := int64(0)
		if c.Sizes[i] != nil {
			stated = *c.Sizes[i]
		}
		switch {
		case stated < 0 || stated > math.MaxUint32:
			return nil, corruptf("column %q: values of %d bytes are stated, which fit in no shard", name, stated)
		case e.Kind == Unknown: // its values are passed over
			e.Size = stated
		case stated != e.Size:
			return nil, corruptf("column %q: values of %d bytes are stated for %s, whose values have %d (0: any)", name,
				stated, e.Text, e.Size)
		}
		out[i] = Column{name, e}
	}
	return out, nil
}

// DecodeConfig decodes the description of columns in a shard.
func DecodeConfig(text []byte) ([]Column, error) {
	var c config
	if err := json.Unmarshal(text, &c); err != nil {
		return nil, corruptf("its description of columns is not JSON: %w", err)
	}
	return c.columns()
}

// ReadIndex reads an index. The error is ErrOther or ErrNone if it is another index, and
// fs.ErrNotExist if there is none.
func ReadIndex(ctx context.Context, store objstore.Store, name string) ([]Shard, error) {
	text, _, err := objstore.ReadAll(ctx, store, name, maxIndex)
	if err != nil {
		return nil, err
	}
	shards, err := DecodeIndex(text)
	if err != nil {
		err = fmt.Errorf("%s: %w", name, err)
	}
	return shards, err
}

// DecodeIndex decodes an index, one shard at a time, because there may be many.
func DecodeIndex(text []byte) (shards []Shard, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, ErrNone
	}
	version, listed := 0, false
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, corruptf("it is cut off, or not JSON: %w", err)
		}
		switch name {
		case "version":
			if d.Decode(&version) != nil {
				return nil, ErrNone
			}
		case "shards":
			if t, err := d.Token(); err != nil || t != json.Delim('[') {
				return nil, ErrNone
			}
			listed = true
			for d.More() {
				if shards, err = appendShard(shards, d); err != nil {
					return nil, err
				}
			}
			if _, err := d.Token(); err != nil {
				return nil, corruptf("it is cut off, or not JSON: %w", err)
			}
		default:
			var skipped json.RawMessage
			if err := d.Decode(&skipped); err != nil {
				return nil, corruptf("it is cut off, or not JSON: %w", err)
			}
		}
	}
	if _, err := d.Token(); err != nil {
		return nil, corruptf("it is cut off, or not JSON: %w", err)
	}
	if !listed {
		return nil, ErrNone
	}
	switch version {
	case 2:
		return shards, nil
	case 0:
		return nil, ErrNone
	default:
		return nil, fmt.Errorf("%w: its version is %d, and this program reads 2", format.ErrVersion, version)
	}
}

func appendShard(shards []Shard, d *json.Decoder) ([]Shard, error) {
	var s struct {
		config
		Format  string `json:"format"`
		Version int    `json:"version"`
		Samples int64  `json:"samples"`
		Raw     *File  `json:"raw_data"`
		Zip     *File  `json:"zip_data"`
	}
	no := len(shards)
	if err := d.Decode(&s); err != nil {
		return nil, corruptf("it is cut off or damaged in shard %d: %w", no, err)
	}
	switch {
	case s.Format != "mds":
		return nil, fmt.Errorf("%w: its shards have the format %q", ErrOther, s.Format)
	case s.Version != 2:
		return nil, fmt.Errorf("%w: shard %d has version %d, and this program reads 2", format.ErrVersion, no,
			s.Version)
	case s.Raw == nil || s.Samples < 0:
		return nil, corruptf("shard %d has no raw_data, or a negative number of samples", no)
	}
	out := Shard{Raw: *s.Raw, Samples: s.Samples}
	if s.Zip != nil {
		out.Zip = *s.Zip
		if out.Zip.Name == "" {
			return nil, corruptf("shard %d has zip_data without a name", no)
		}
	}
	for _, f := range []File{out.Raw, out.Zip} {
		if f.Size < 0 || f.Name != "" && (path.Clean("/"+f.Name) != "/"+f.Name ||
			strings.ContainsAny(f.Name, "\\\x00")) || out.Raw.Name == "" {
			return nil, corruptf("shard %d names the file %q of %d bytes, which is none below the folder of the index",
				no, f.Name, f.Size)
		}
	}
	columns, err := s.columns()
	if err != nil {
		return nil, fmt.Errorf("shard %d: %w", no, err)
	}
	if no > 0 && slices.EqualFunc(columns, shards[no-1].Columns,
		func(a, b Column) bool { return a.Name == b.Name && a.Text == b.Text && a.Size == b.Size }) {
		columns = shards[no-1].Columns
	}
	out.Columns = columns
	return append(shards, out), nil
}

func corruptf(msg string, args ...any) error {
	return fmt.Errorf("%w: %w", format.ErrCorrupt, fmt.Errorf(msg, args...))
}
