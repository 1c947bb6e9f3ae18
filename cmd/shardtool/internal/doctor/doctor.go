// Package doctor examines samples for problems of training jobs, before they are packed or in a
// data set, and the stores that they are in.
//
//	writer.Source ──▶ Source ──▶ keys, fields, payloads ──▶ Report
//	reader.Dataset ──▶ Dataset ──▶ fields, payloads, shards, mixing ──▶ Report
//	objstore.Store ──▶ Store ──▶ identity, permissions, round trip, clock ──▶ StoreReport
//
// A Report lists each kind of problem with its number and a few places. Nothing is changed,
// except that Store puts and deletes objects if it is told to.
package doctor

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"image/jpeg"
	"image/png"
	"maps"
	"slices"
	"strings"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/fieldname"
	"github.com/shardtool/shardtool/internal/order/uniformity"
	"github.com/shardtool/shardtool/reader/order"
)

// Kind is a kind of problem.
type Kind string

// The kinds.
const (
	Corrupt      Kind = "corrupt"          // damaged bytes; the rest was not examined
	DottedName   Kind = "dotted-name"      // a dot divides a file name into key and field in an unexpected place
	DuplicateKey Kind = "duplicate-key"    // two samples have the same key
	Empty        Kind = "empty"            // a field without bytes
	FieldsDiffer Kind = "fields-differ"    // samples with other fields than most
	Fused        Kind = "fused"            // files of one sample that look like samples of their own
	Hidden       Kind = "hidden"           // files that were left out because their name begins with a dot
	MixesLittle  Kind = "mixes-little"     // the default shuffle mixes the data set noticeably less than at random
	Name         Kind = "name"             // a name that cannot be a key
	NoOrder      Kind = "no-order"         // the default shuffle does not fit the default memory
	Null         Kind = "null"             // a row without a value, even where the source leaves such rows out
	TinyShards   Kind = "tiny-shards"      // shards too small to stream well
	Undecodable  Kind = "undecodable"      // JSON, JPEG or PNG that does not decode
	Unreadable   Kind = "unreadable"       // a sample that cannot be read
	UpperCase    Kind = "upper-case-field" // a field that WebDataset renames to lower case
)

// mostExamples is the number of places that a Finding keeps.
const mostExamples = 5

// Finding is one kind of problem.
type Finding struct {
	Kind     Kind     `json:"kind"`
	Count    int      `json:"count"`
	Advice   string   `json:"advice"`   // what to do. It is for the caller to fill in.
	Examples []string `json:"examples"` // up to five places
}

// Report is what was found.
type Report struct {
	// Samples is the number of samples examined.
	Samples int64
	// Findings are in ascending order of Kind; empty means that nothing was found.
	Findings []Finding
	// Mixing is nil for sources, for a data set with Corrupt or NoOrder.
	Mixing *Mixing
}

// Mixing measures the order that a job gets that shuffles with default settings.
type Mixing struct {
	Params      order.Params
	GlobalBatch int
	// Labels is the number of parts that storage was divided into.
	Labels int
	// Figures have one world.
	uniformity.Figures
}

// Progress counts what was examined so far.
type Progress struct{ Samples, Bytes int64 }

// Options say what to examine.
type Options struct {
	// Limit is the most samples to examine; 0 examines all.
	Limit int64
	// FileNames reports that keys and fields are parts of file names, rather than names of columns.
	FileNames bool
	// Progress, when not nil, is called after each sample of a source, from one goroutine.
	Progress func(Progress)
}

const (
	// mostPayload is the largest payload of a source that is read to look inside.
	mostPayload = 256 << 20
	// mostKeys is how many keys are remembered, about 40 bytes each; mostOrigins of them with their
	// place.
	mostKeys, mostOrigins = 16 << 20, 1 << 20
)

// examination collects findings.
type examination struct {
	Options
	kinds   map[Kind]*Finding
	lists   []string // names of lists of files
	samples int64
	bytes   int64
	shapes  map[string]*shape // by fields
	seed    maphash.Seed
	origins map[uint64]string // by hash of the key: its place, or "" when that is not remembered
	buf     []byte
}

// shape is a set of fields that samples have.
type shape struct {
	fields  string
	samples int
	example string
}

func newExamination(o Options) *examination {
	return &examination{Options: o, kinds: map[Kind]*Finding{}, shapes: map[string]*shape{}, seed: maphash.MakeSeed(),
		origins: map[uint64]string{}}
}

// found adds a place to the findings of a kind.
func (e *examination) found(kind Kind, example string) {
	f := e.kinds[kind]
	if f == nil {
		f = &Finding{Kind: kind}
		e.kinds[kind] = f
	}
	f.Count++
	if len(f.Examples) < mostExamples {
		f.Examples = append(f.Examples, example)
	}
}

// done reports whether the limit is reached.
func (e *examination) done() bool { return e.Limit > 0 && e.samples >= e.Limit }

// report ends the examination.
func (e *examination) report() *Report {
	e.compareShapes()
	r := &Report{Samples: e.samples, Findings: []Finding{}}
	for _, kind := range slices.Sorted(maps.Keys(e.kinds)) {
		r.Findings = append(r.Findings, *e.kinds[kind])
	}
	return r
}

// key reports a key that an earlier sample has.
func (e *examination) key(key, origin string) {
	h := maphash.String(e.seed, key)
	first, twice := e.origins[h]
	switch {
	case twice:
		e.found(DuplicateKey, cmp.Or(first, "an earlier sample")+" and "+origin)
	case len(e.origins) < mostOrigins:
		e.origins[h] = origin
	case len(e.origins) < mostKeys:
		e.origins[h] = ""
	}
}

// fields examines the names of a sample's fields, and counts the sample.
func (e *examination) fields(where string, names []string) {
	e.samples++
	quoted := slices.Clone(names)
	quoted = slices.DeleteFunc(quoted, e.element)
	for i, n := range quoted {
		quoted[i] = shownField(n)
	}
	text := strings.Join(quoted, " ")
	if e.shapes[text] == nil {
		e.shapes[text] = &shape{fields: text, example: where}
	}
	e.shapes[text].samples++
	for _, n := range names {
		e.fieldName(where+": ", n)
	}
}

// element reports whether a field is an element of a list of files, of which a sample may have any
// number.
func (e *examination) element(field string) bool {
	return slices.ContainsFunc(e.lists, func(list string) bool {
		_, is := fieldname.Element(field, list)
		return is
	})
}

// fieldName examines the name of a field.
func (e *examination) fieldName(where, name string) {
	if e.FileNames && strings.Contains(name, ".") {
		e.found(DottedName, where+"the field "+name)
	}
	if name != strings.ToLower(name) {
		e.found(UpperCase, where+"the field "+name)
	}
}

// compareShapes reports samples whose fields differ from the fields of most.
func (e *examination) compareShapes() {
	shapes := slices.SortedFunc(maps.Values(e.shapes), func(a, b *shape) int {
		return cmp.Or(cmp.Compare(b.samples, a.samples), cmp.Compare(a.fields, b.fields))
	})
	for i, s := range shapes {
		if i > 0 {
			e.found(FieldsDiffer, fmt.Sprintf("%d with [%s], most with [%s]; the first: %s", s.samples, s.fields,
				shapes[0].fields, s.example))
		}
	}
}

// payload examines the bytes of a field, as far as the name of the field tells what they are.
func (e *examination) payload(where, field string, data []byte) {
	what := format.JoinName(where, field)
	if strings.HasSuffix(where, "."+field) {
		what = where
	}
	if len(data) == 0 {
		e.found(Empty, what)
		return
	}
	if err := decode(field[strings.LastIndexByte(field, '.')+1:], data); err != nil {
		e.found(Undecodable, fmt.Sprintf("%s: %v", what, err))
	}
}

// decode checks JSON, and the headers and ends of images. A PNG that is called .jpg, as a
// well-known data set has one, is an image: decoders look at the bytes.
func decode(extension string, data []byte) (err error) {
	extension = strings.ToLower(extension)
	if slices.Contains([]string{"jpg", "jpeg", "png"}, extension) {
		switch {
		case bytes.HasPrefix(data, []byte("\x89PNG\r\n")):
			extension = "png"
		case bytes.HasPrefix(data, []byte("\xff\xd8\xff")):
			extension = "jpg"
		}
	}
	switch extension {
	case "json":
		if !json.Valid(data) {
			return errors.New("not valid JSON")
		}
	case "jpg", "jpeg":
		_, err = jpeg.DecodeConfig(bytes.NewReader(data))
		if err == nil && !bytes.HasSuffix(bytes.TrimRight(data, "\x00"), []byte{0xff, 0xd9}) {
			return errors.New("no end marker: the file is cut off")
		}
	case "png":
		_, err = png.DecodeConfig(bytes.NewReader(data))
		if err == nil && !bytes.Contains(data[max(0, len(data)-64):], []byte("IEND")) {
			return errors.New("no IEND: the file is cut off")
		}
	}
	return err
}
