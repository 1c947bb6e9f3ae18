package writer

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"math/bits"
	"slices"
	"strings"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/npy"
)

// length is an attribute whose value is the number of elements of an array.
type length struct{ attr, field string }

// lengths returns the attributes of Options.Lengths, in ascending order of names.
func (o *Options) lengths() []length {
	var out []length
	for _, attr := range slices.Sorted(maps.Keys(o.Lengths)) {
		out = append(out, length{attr, o.Lengths[attr]})
	}
	return out
}

// wants reports whether a sample lacks the attribute, and finds its field. A value that the source
// gives stays: the value of a padded sample counts its real tokens.
func (l length) wants(attrs []format.AttrValue, fields []format.FieldSize) (field int, wanted bool, err error) {
	if slices.ContainsFunc(attrs, func(a format.AttrValue) bool { return a.Name == l.attr }) {
		return 0, false, nil
	}
	if len(fields) == 1 && fields[0] == (format.FieldSize{}) { // a sample of a layer that has nothing
		return 0, false, nil
	}
	field = slices.IndexFunc(fields, func(f format.FieldSize) bool { return f.Name == l.field })
	if field < 0 {
		names := make([]string, len(fields))
		for i, f := range fields {
			names[i] = fmt.Sprintf("%q", f.Name)
		}
		return 0, false, l.failed(fmt.Errorf("the sample has only %s: choose another field", strings.Join(names, ", ")))
	}
	return field, true, nil
}

// failed is the error of a sample whose field gives no length.
func (l length) failed(err error) error {
	return fmt.Errorf("%w for attribute %q from field %q: %w", ErrLength, l.attr, l.field, err)
}

// value returns the attribute by the header of an array of size bytes, which begins with the bytes
// of first.
func (l length) value(first []byte, size int64) (v format.AttrValue, err error) {
	n, err := elements(first, size)
	if err != nil {
		return v, l.failed(err)
	}
	return format.AttrValue{Attribute: format.Attribute{Name: l.attr, Kind: format.AttrInteger}, Integer: n}, nil
}

// elements returns the number of elements of a one-dimensional array of size bytes.
func elements(first []byte, size int64) (int64, error) {
	h, rest, err := npy.Read(first, size)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", format.ErrCorrupt, err)
	}
	if len(h.Shape) != 1 {
		return 0, fmt.Errorf("its array has %d dimensions: choose a field of arrays with one", len(h.Shape))
	}
	count := h.Shape[0]
	if h.Size > 0 { // the size of an element is known
		high, low := bits.Mul64(uint64(count), uint64(h.Size))
		if left := size - int64(len(first)-len(rest)); high > 0 || low != uint64(left) {
			return 0, fmt.Errorf("%w: an array of %d elements of %d bytes has %d bytes: it is truncated, or bytes follow it",
				format.ErrCorrupt, count, h.Size, left)
		}
	}
	return count, nil
}

// peeked is a payload of which the first bytes have been read.
type peeked struct {
	io.ReadCloser
	first bytes.Reader
}

// header reads the header of an array, or all bytes of a shorter payload.
func (p *peeked) header() ([]byte, error) {
	first := make([]byte, npy.Lead)
	n, err := io.ReadFull(p.ReadCloser, first)
	first = first[:n]
	if err == nil {
		if size, bad := npy.HeaderLen(first); bad == nil && size > npy.Lead { // at most 64 KiB
			first = append(first, make([]byte, size-npy.Lead)...)
			n, err = io.ReadFull(p.ReadCloser, first[npy.Lead:])
			first = first[:npy.Lead+n]
		}
	}
	if err == io.EOF || err == io.ErrUnexpectedEOF { // the length of the header is then an error
		err = nil
	}
	p.first.Reset(first)
	return first, err
}

// Read implements io.Reader.
func (p *peeked) Read(to []byte) (int, error) {
	if p.first.Len() > 0 {
		return p.first.Read(to)
	}
	return p.ReadCloser.Read(to)
}
