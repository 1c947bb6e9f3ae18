package reader

import (
	"fmt"
	"io/fs"
)

// AppendKey appends the key of sample or row i.
func (b *Batch) AppendKey(dst []byte, i int) []byte {
	if b.s.rows == nil {
		return append(dst, b.Samples[i].Key...)
	}
	if b.memory == nil {
		return dst
	}
	return b.memory.rows.AppendKey(dst, i)
}

// Rows returns the rows of a field, one after another: row i is data[i*stride:][:stride], and there
// are Len of them. It is one array of the type and shape that StreamInfo.Rows states, in the order
// of the stream, without the headers that the samples of stacked data have. The first call for a
// field copies the rows into memory of the batch; it is valid until Release, or until the next call
// of Next when StreamOptions.Hold is 0. If there is no such field, data is nil and stride 0.
func (b *Batch) Rows(field string) (data []byte, stride int) {
	f, stride, err := b.rowField(field)
	if err != nil {
		return nil, 0
	}
	return b.memory.rows.Make(f), stride
}

// CopyRows is Rows into the caller's memory: the first Len times stride bytes of dst. It fails if
// dst is smaller, if there is no such field, or if the batch is released.
func (b *Batch) CopyRows(dst []byte, field string) error {
	f, stride, err := b.rowField(field)
	if err != nil {
		return err
	}
	n := b.Len() * stride
	if len(dst) < n {
		return fmt.Errorf("the rows of field %q have %d bytes, and dst has %d", field, n, len(dst))
	}
	b.memory.rows.Copy(dst[:n], f)
	return nil
}

// rowField finds a field.
func (b *Batch) rowField(name string) (i, stride int, err error) {
	switch {
	case b.s.rows == nil:
		return 0, 0, fmt.Errorf("%w: the batch has samples, and no rows: set StreamOptions.Rows", ErrFields)
	case b.memory == nil:
		return 0, 0, fmt.Errorf("the batch is released: %w", fs.ErrClosed)
	}
	for i := range b.s.rows.Fields {
		if f := &b.s.rows.Fields[i]; f.Name == name {
			return i, int(f.Row()), nil
		}
	}
	return 0, 0, fmt.Errorf("%w: rows have no field %q", ErrFields, name)
}
