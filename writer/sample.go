package writer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/input/tally"
	"github.com/shardtool/shardtool/internal/sys/plain"
)

// Sample is a key and its fields.
type Sample struct {
	// Key is unique in the data set; see format.CheckKey for what it may be.
	Key string
	// Fields are in any order. There is at least one, and no name occurs twice.
	Fields []Field
	// Attrs are values that the index keeps, beside the fields.
	Attrs []format.AttrValue
	// Origin names the sample in errors, for example by a path; it may be empty.
	Origin string
	// Source and Row name it for programs: a file, and the number of the row, line or sample in it,
	// counted from 1, or 0. Where Source is empty, Origin is used.
	Source string
	Row    int64
}

// failed is the error of the sample.
func (s *Sample) failed(err error) *SampleError {
	return &SampleError{Origin: s.Origin, Key: s.Key, Source: s.Source, Row: s.Row, Err: err}
}

// Field is a named payload, in memory or read later by a worker.
type Field struct {
	// Name is what follows the first dot in the base name of the member; it may be empty.
	Name string
	// Data is the payload when Payload is nil. Write copies it.
	Data []byte
	// Payload, when not nil, gives Size bytes to a worker, possibly long after Write returned and
	// in another goroutine.
	Payload Payload
	// Size is the length of Payload in bytes.
	Size int64
}

func (f *Field) size() int64 {
	if f.Payload != nil {
		return f.Size
	}
	return int64(len(f.Data))
}

// Payload is bytes that are not in memory yet.
type Payload interface {
	// ReadInto fills p, whose length is the field's Size. It fails if there are fewer or more
	// bytes.
	ReadInto(ctx context.Context, p []byte) error
	// Open streams the same bytes, for payloads too large to hold. If there are fewer or more bytes
	// than Size the reader fails instead of returning io.EOF.
	Open(ctx context.Context) (io.ReadCloser, error)
}

// Source yields samples in an order that depends on its content and options alone. It is for one
// goroutine. A Source may also be a Splitter, to be packed in parts, and a Stacker, to choose the
// layout of its samples.
type Source interface {
	// Next returns the next sample, or io.EOF. A *SampleError means that one sample cannot be read;
	// the next call continues after it.
	Next(ctx context.Context) (Sample, error)
	// Cursor names the place before the sample that Next returns next. Seek moves there, also in a
	// later process over the same content.
	Cursor() string
	Seek(ctx context.Context, cursor string) error
	// Fingerprint changes whenever the samples may have changed.
	Fingerprint() string
	// Meta is stored in the manifest, for example the names of classes.
	Meta() format.Metadata
	// Total is how many samples and bytes there are, for progress; zero if not known.
	Total() (samples, bytes int64)
	Close() error
}

// Splitter is a Source that can be divided, so that many machines pack one data set.
type Splitter interface {
	Source
	// Split limits the source to one of that many parts, counted from 0, and moves to its
	// beginning. It is called at most once, before Next. The parts are disjoint, in order, and
	// together the whole; where they are divided depends on content and options alone. A part may
	// be empty. Fingerprint and Meta still describe the whole; Total describes the part. A cursor is
	// valid in its part only.
	Split(part, parts int) error
}

// Stacker is a Source that chooses the layout where Options.Layout is LayoutOfSource.
type Stacker interface {
	Source
	// Stacks reports whether its samples are to be stacked. It is called after Next has returned the
	// first sample.
	Stacks() bool
}

// SampleError is the failure of one sample, which Options.Faults can leave out.
type SampleError struct {
	// Origin and Key name the sample.
	Origin, Key string
	// Source and Row are as in Sample.
	Source string
	Row    int64
	Err    error
	// LeaveOut reports that the source was asked to leave such samples out: they are skipped and
	// counted whatever Options.Faults says.
	LeaveOut bool
}

// Error returns origin, key and cause. It cuts the text of a key and an origin that are very long,
// as names in an archive can be.
func (e *SampleError) Error() string {
	switch {
	case e.Origin != "" && e.Key != "":
		return fmt.Sprintf("%.1024s (sample %.256q): %v", plain.Text(e.Origin), e.Key, e.Err)
	case e.Origin != "":
		return fmt.Sprintf("%.1024s: %v", plain.Text(e.Origin), e.Err)
	}
	return fmt.Sprintf("sample %.256q: %v", e.Key, e.Err)
}

// Unwrap returns Err.
func (e *SampleError) Unwrap() error { return e.Err }

// checkSample validates s and sorts its fields by name.
func checkSample(s *Sample) error {
	err := format.CheckKey(s.Key)
	if err == nil && len(s.Fields) == 0 {
		err = errors.New("the sample has no fields: give it at least one")
	}
	if err != nil {
		return err
	}
	if !slices.IsSortedFunc(s.Fields, compareFields) {
		s.Fields = slices.Clone(s.Fields)
		slices.SortFunc(s.Fields, compareFields)
	}
	room := int64(maxSample)
	for i := range s.Fields {
		f := &s.Fields[i]
		if err := format.CheckField(f.Name); err != nil {
			return err
		}
		if i > 0 && f.Name == s.Fields[i-1].Name {
			return fmt.Errorf("%w field %q", format.ErrDuplicate, f.Name)
		}
		if len(s.Key)+1+len(f.Name) > format.MaxName {
			return fmt.Errorf("%w: member name of %d bytes is longer than %d", format.ErrName, len(s.Key)+1+len(f.Name),
				format.MaxName)
		}
		if f.size() < 0 {
			return fmt.Errorf("field %q has a size of %d", f.Name, f.size())
		}
		if f.size() > room {
			return fmt.Errorf("%w: sample of more than %d bytes", format.ErrTooLarge, int64(maxSample))
		}
		room -= f.size()
	}
	return checkAttrs(s.Attrs)
}

// maxSample keeps sums of sizes inside 64 bits, also in the manifests of parts (SPEC 6).
const maxSample = 1 << 55

func checkAttrs(attrs []format.AttrValue) error {
	for i, a := range attrs {
		if a.Kind > format.AttrNumber {
			return fmt.Errorf("attribute %q has the unknown kind %d", a.Name, uint8(a.Kind))
		}
		for _, o := range attrs[:i] {
			if o.Name == a.Name {
				return fmt.Errorf("%w attribute %q", format.ErrDuplicate, a.Name)
			}
		}
	}
	return nil
}

func compareFields(a, b Field) int { return strings.Compare(a.Name, b.Name) }

func sameKind(kinds map[string]format.AttrKind, a format.Attribute) error {
	if kind, ok := kinds[a.Name]; ok && kind != a.Kind {
		return fmt.Errorf("%w: attribute %q is a %v here and a %v in earlier samples", format.ErrMismatch, a.Name,
			a.Kind, kind)
	}
	return nil
}

// RowsLeft counts the rows that a source leaves out by itself, by rule.
type RowsLeft = tally.Rows

// leaver is a Source that leaves out rows by itself, see LeftOut.
type leaver interface {
	LeftOut() (before, behind RowsLeft)
}

// learner is a Source that knows more of the data set's metadata once all samples were read. What
// it returns takes precedence over Meta.
type learner interface{ Learned() format.Metadata }
