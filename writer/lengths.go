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
	"github.com/shardtool/shardtool/internal/npy"
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
// gives stays: that of a padded sample counts its real tokens.
func (l length) wants(s *blockSample) (field int, wanted bool, err error) {
	if slices.ContainsFunc(s.attrs, func(a format.AttrValue) bool { return a.Name == l.attr }) {
		return 0, false, nil
	}
	field = slices.IndexFunc(s.fields, func(f format.FieldSize) bool { return f.Name == l.field })
	if field < 0 {
		names := make([]string, len(s.fields))
		for i, f := range s.fields {
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

// set sets the attribute by the header of an array of size bytes, which begins with the bytes of
// first.
func (l length) set(s *blockSample, first []byte, size int64) error {
	n, err := elements(first, size)
	if err != nil {
		return l.failed(err)
	}
	s.attrs = append(s.attrs, format.AttrValue{Attribute: format.Attribute{Name: l.attr, Kind: format.AttrInteger}, Integer: n})
	return nil
}

// elements returns the number of elements of a one-dimensional array of size bytes.
func elements(first []byte, size int64) (int64, error) {
	n, err := npy.HeaderLen(first[:min(npy.Lead, len(first))])
	if err == nil && n > int64(len(first)) {
		err = fmt.Errorf("its header of %d bytes is truncated: it has %d", n, size)
	}
	if err != nil {
		return 0, fmt.Errorf("%w: %w", format.ErrCorrupt, err)
	}
	h, err := npy.Parse(first[:n])
	if err != nil {
		return 0, fmt.Errorf("%w: %w", format.ErrCorrupt, err)
	}
	if len(h.Shape) != 1 {
		return 0, fmt.Errorf("its array has %d dimensions: choose a field of arrays with one", len(h.Shape))
	}
	count := h.Shape[0]
	if h.Size > 0 { // the size of an element is known
		high, low := bits.Mul64(uint64(count), uint64(h.Size))
		if high > 0 || low != uint64(size-n) {
			return 0, fmt.Errorf("%w: an array of %d elements of %d bytes has %d bytes: it is truncated, or bytes follow it",
				format.ErrCorrupt, count, h.Size, size-n)
		}
	}
	return count, nil
}

// measure sets the attributes of samples in the layout of a block. A sample without a length is
// dropped.
func (p *packer) measure(b *block, laid []blockSample) error {
	for i := range laid {
		s := &laid[i]
		for _, l := range p.lengths {
			if s.dropped != nil {
				break
			}
			field, wanted, err := l.wants(s)
			if wanted {
				at, size := b.layout.Payloads[s.begin+field], s.fields[field].Size
				err = l.set(s, b.layout.Buf[at:int64(at)+size], size)
			}
			if err == nil {
				continue
			}
			if err := p.drop(s, err); err != nil {
				return err
			}
		}
	}
	return nil
}

// measureHuge sets the attributes of a sample that is not in the layout. payloads are its open
// fields, nil for those in memory; their bytes stay to be read.
func (s *blockSample) measureHuge(of *Sample, payloads []io.ReadCloser, lengths []length) error {
	for _, l := range lengths {
		field, wanted, err := l.wants(s)
		if err != nil {
			return err
		}
		if !wanted {
			continue
		}
		first := of.Fields[field].Data
		if payloads[field] != nil {
			r := &peeked{ReadCloser: payloads[field]}
			if first, err = r.header(); err != nil {
				return l.failed(err)
			}
			payloads[field] = r
		}
		if err := l.set(s, first, s.fields[field].Size); err != nil {
			return err
		}
	}
	return nil
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

// knowLengths fixes the kind of the attributes of Options.Lengths.
func (w *Writer) knowLengths() error {
	for _, l := range w.opt.lengths() {
		a := format.Attribute{Name: l.attr, Kind: format.AttrInteger}
		if err := sameKind(w.attrs, a); err != nil {
			return err
		}
		w.attrs[a.Name] = a.Kind
	}
	return nil
}
