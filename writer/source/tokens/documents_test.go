package tokens_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source/tokens"
)

// document is one that a test made up.
type document struct {
	key string
	ids []int64
	bad error // what reading it fails with
}

// documents is a source of them, which come as arrays and lists, at hand and to be read.
type documents struct {
	list       []document
	at         int
	begin, end int
	last       [][]byte // given with the last sample: overwritten at the next call
	later      bool     // all are payloads
	closed     bool
}

func newDocuments(list []document) *documents { return &documents{list: list, end: len(list)} }

var _ writer.Splitter = (*documents)(nil)

func (d *documents) Next(ctx context.Context) (writer.Sample, error) {
	for _, b := range d.last {
		for i := range b {
			b[i] = 0xee
		}
	}
	d.last = nil
	if d.at == d.end {
		return writer.Sample{}, io.EOF
	}
	doc := d.list[d.at]
	d.at++
	if doc.bad != nil {
		return writer.Sample{}, &writer.SampleError{Origin: "documents", Key: doc.key, Err: doc.bad}
	}
	content, name := d.content(d.at-1, doc.ids)
	f := writer.Field{Name: name, Data: content}
	if d.at%3 == 0 || d.later {
		f = writer.Field{Name: name, Payload: late(content), Size: int64(len(content))}
	} else {
		d.last = append(d.last, content)
	}
	return writer.Sample{Key: doc.key, Origin: "documents", Row: int64(d.at), Fields: []writer.Field{{Name: "text.txt", Data: []byte("words")}, f}}, ctx.Err()
}

// content is a document in one of several forms.
func (d *documents) content(i int, ids []int64) ([]byte, string) {
	switch i % 5 {
	case 0:
		text := strings.Join(strings.Fields(fmt.Sprint(ids)), ",\n ")
		return []byte(" " + text + "\n"), "input_ids.json"
	case 1:
		return file("<i8", fmt.Sprintf("(1, %d)", len(ids)), ids64(ids...)), "input_ids.npy"
	}
	return file("<u2", fmt.Sprintf("(%d,)", len(ids)), ids16(ids...)), "input_ids.npy"
}

func (d *documents) Cursor() string { return fmt.Sprintf("doc %d", d.at) }

func (d *documents) Seek(_ context.Context, cursor string) error {
	_, err := fmt.Sscanf(cursor, "doc %d", &d.at)
	return err
}

func (d *documents) Fingerprint() string           { return fmt.Sprint(d.list) }
func (d *documents) Meta() format.Metadata         { return format.Metadata{"classes": "[]"} }
func (d *documents) Total() (samples, bytes int64) { return int64(d.end - d.begin), 0 }
func (d *documents) Close() error                  { d.closed = true; return nil }

func (d *documents) Split(part, parts int) error {
	d.begin, d.end = len(d.list)*part/parts, len(d.list)*(part+1)/parts
	d.at = d.begin
	return nil
}

// late is a payload that is read when it is asked for.
type late []byte

func (l late) ReadInto(_ context.Context, p []byte) error {
	if copy(p, l) != len(l) || len(p) != len(l) {
		return errors.New("another size")
	}
	return nil
}

func (l late) Open(context.Context) (io.ReadCloser, error) {
	return io.NopCloser(io.MultiReader(bytes.NewReader(l[:len(l)/2]), bytes.NewReader(l[len(l)/2:]))), nil
}

// randomDocuments are mostly short ones, some without tokens and some that fail.
func randomDocuments(rng *rand.Rand, n, longest int) (list []document) {
	for i := range n {
		d := document{key: fmt.Sprintf("part-%d/doc \"%d\"é", i%3, i)}
		for range rng.IntN(longest + 1) {
			d.ids = append(d.ids, rng.Int64N(60000))
		}
		if rng.IntN(20) == 0 {
			d.bad = fmt.Errorf("page %d is torn", i)
		}
		list = append(list, d)
	}
	return list
}

// stream returns the tokens of the joined documents.
func stream(list []document, separator []int64) (ids []int64) {
	for _, d := range list {
		if d.bad == nil {
			ids = append(append(ids, d.ids...), separator...)
		}
	}
	return ids
}

func join(t interface {
	Helper()
	Fatal(...any)
}, src writer.Source, opt tokens.JoinOptions) writer.Splitter {
	t.Helper()
	j, err := tokens.NewJoin(src, opt)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// fixed is a source of one sample that cannot be divided.
type fixed struct {
	fields []writer.Field
	given  bool
	key    string
}

func (f *fixed) Next(context.Context) (writer.Sample, error) {
	if f.given || f.fields == nil {
		return writer.Sample{}, io.EOF
	}
	f.given = true
	key := f.key
	if key == "" {
		key = "doc"
	}
	return writer.Sample{Key: key, Origin: "the file", Fields: f.fields}, nil
}

func (f *fixed) Cursor() string                     { return fmt.Sprint(f.given) }
func (f *fixed) Seek(context.Context, string) error { f.given = false; return nil }
func (f *fixed) Fingerprint() string                { return "fixed" }
func (f *fixed) Meta() format.Metadata              { return nil }
func (f *fixed) Total() (samples, bytes int64)      { return 0, 0 }
func (f *fixed) Close() error                       { return nil }

type ctx = context.Context

// torn is a payload that fails in the middle.
type torn struct{ late }

var errTorn = errors.New("the page is torn")

func (p torn) Open(context.Context) (io.ReadCloser, error) {
	return io.NopCloser(io.MultiReader(bytes.NewReader(p.late[:128+2*150]), failing{})), nil
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errTorn }
