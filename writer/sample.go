package writer

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/plain"
)

// Sample is a key and its fields.
type Sample struct {
	// Key is unique in the data set; see format.CheckKey for what it may be.
	Key string
	// Fields are in any order; no name comes twice. There is at least one.
	Fields []Field
	// Attrs are values kept in the index, beside the fields.
	Attrs []format.AttrValue
	// Origin says in errors where the sample comes from, such as a path; may be empty.
	Origin string
	// Source and Row are the same for programs: a file, and the number of the row, line or sample in it, from 1; 0 where it has
	// none. Where Source is empty, Origin stands for it.
	Source string
	Row    int64
}

// Field is a named payload, in memory or to be read later by a worker.
type Field struct {
	// Name is what follows the first dot of the member's name; may be empty.
	Name string
	// Data is the payload when Payload is nil. Write copies it.
	Data []byte
	// Payload, when not nil, gives Size bytes when a worker gets to them, possibly long after Write returned and from
	// another goroutine.
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
	// ReadInto fills p, whose length is the field's Size. It fails when there are fewer or more bytes than that.
	ReadInto(ctx context.Context, p []byte) error
	// Open streams the same bytes; used for payloads too large to hold. The reader fails, rather than ends, when there are
	// fewer or more bytes than Size.
	Open(ctx context.Context) (io.ReadCloser, error)
}

// Source yields samples in an order that depends on nothing but its content and options. It is used by one goroutine.
type Source interface {
	// Next returns the next sample, or io.EOF. A *SampleError says that one sample cannot be had and the next call goes on
	// behind it.
	Next(ctx context.Context) (Sample, error)
	// Cursor names the place before the sample that Next returns next. Seek goes there, also in a later process over the
	// same content.
	Cursor() string
	Seek(ctx context.Context, cursor string) error
	// Fingerprint changes whenever what the source yields may have changed.
	Fingerprint() string
	// Meta are facts to keep in the manifest, such as the names of classes.
	Meta() format.Metadata
	// Total says what is to come in all, for progress; zero when it is not known.
	Total() (samples, bytes int64)
	Close() error
}

// Splitter is a Source that can be divided, so that many machines pack one data set.
type Splitter interface {
	Source
	// Split limits the source to one of so many parts, counted from 0, and goes to its beginning; it is called at most once and
	// before Next. The parts are disjoint, in order, and together the whole; where they are divided depends on content and
	// options alone. A part may be empty. Fingerprint and Meta stay those of the whole; Total is that of the part. Cursors are
	// good in the same part only.
	Split(part, parts int) error
}

// SampleError is the failure of one sample that can be left out with OnErrorSkip.
type SampleError struct {
	// Origin and Key name the sample.
	Origin, Key string
	// Source and Row are as in Sample.
	Source string
	Row    int64
	Err    error
	// LeaveOut says that the source was asked to leave such samples out: they are skipped and counted
	// whatever Options.OnError says.
	LeaveOut bool
}

// Error names origin and key.
func (e *SampleError) Error() string {
	switch {
	case e.Origin != "" && e.Key != "":
		return fmt.Sprintf("%s (sample %q): %v", plain.Text(e.Origin), e.Key, e.Err)
	case e.Origin != "":
		return fmt.Sprintf("%s: %v", plain.Text(e.Origin), e.Err)
	}
	return fmt.Sprintf("sample %q: %v", e.Key, e.Err)
}

// Unwrap gives the cause.
func (e *SampleError) Unwrap() error { return e.Err }

// checkSample validates s and sorts its fields by name.
func checkSample(s *Sample) error {
	err := format.CheckKey(s.Key)
	if err == nil && len(s.Fields) == 0 {
		err = fmt.Errorf("%w: no fields", format.ErrName)
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
			return fmt.Errorf("%w: member name of %d bytes is longer than %d", format.ErrName, len(s.Key)+1+len(f.Name), format.MaxName)
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

// maxSample keeps sums of sizes inside 64 bits, those of the manifest's parts too (SPEC 6).
const maxSample = 1 << 55

func checkAttrs(attrs []format.AttrValue) error {
	for i, a := range attrs {
		if a.Kind > format.AttrNumber {
			return fmt.Errorf("attribute %q is of no known kind: %d", a.Name, uint8(a.Kind))
		}
		for _, o := range attrs[:i] {
			if o.Name == a.Name {
				return fmt.Errorf("%w attribute %q", format.ErrDuplicate, a.Name)
			}
		}
	}
	return nil
}

func compareFields(a, b Field) int {
	switch {
	case a.Name < b.Name:
		return -1
	case a.Name > b.Name:
		return 1
	}
	return 0
}
