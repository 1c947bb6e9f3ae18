package block

import (
	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/samplekey"
	"github.com/shardtool/shardtool/internal/format/stacked"
)

// Kind is how the samples of a block are stored: in tar members, or as rows of arrays.
type Kind struct {
	// Foreign marks an archive written by another tool.
	Foreign bool
	// Layout describes the rows of a stacked shard; it is nil for an ordinary one. Numbered has the
	// keys of the shard if they are numbered. Before is the number of the shard's samples before the
	// block.
	Layout   *stacked.Layout
	Numbered samplekey.Ranges
	Before   uint64
}

// mostMade bounds the memory for samples that is made at a time.
const mostMade = 1 << 20

// Rows are the samples of a block of a stacked shard. A row is found by arithmetic, so a block
// costs the same whatever its number of samples. The zero value is ready for Open. Rows implement
// Samples; several goroutines may read them.
type Rows struct {
	// Block is the arrays of the block.
	Block stacked.Block

	kind  Kind
	names [][]byte // of the fields
	size  int      // bytes of the fields of a sample, and a usual key
}

// Open sets r to a decoded block of count samples. It compares all bytes except rows with the
// layout. Errors wrap format.ErrCorrupt.
func (r *Rows) Open(decoded []byte, count int, kind Kind) error {
	if r.kind.Layout != kind.Layout {
		r.names, r.size = r.names[:0], 64
		for i := range kind.Layout.Fields {
			f := &kind.Layout.Fields[i]
			r.names = append(r.names, []byte(f.Name))
			r.size += int(f.Size())
		}
	}
	r.kind = kind
	return stacked.OpenBlock(&r.Block, decoded, kind.Layout, kind.Before, count, kind.Numbered != nil)
}

// Len implements Samples.
func (r *Rows) Len() int { return r.Block.N }

// AppendKey appends the key of sample i.
func (r *Rows) AppendKey(dst []byte, i int) []byte {
	if r.kind.Numbered == nil {
		return append(dst, r.Block.Key(i)...)
	}
	return r.kind.Numbered.AppendKey(dst, r.kind.Before+uint64(i))
}

// At implements Samples. A field is an NPY file, so key and fields are made in buf.
func (r *Rows) At(i int, fields []format.FieldView, buf []byte) (key []byte, _ []format.FieldView, _ []byte) {
	begin := len(buf)
	buf = r.AppendKey(buf, i)
	if need := r.size - 64; cap(buf)-len(buf) < need { // the fields must not move
		buf = append(make([]byte, 0, max(len(buf)-begin+need, min(2*cap(buf), mostMade))), buf[begin:]...)
		begin = 0
	}
	key = buf[begin:len(buf):len(buf)]
	for f := range r.names {
		at := len(buf)
		buf = r.Block.AppendField(buf, f, i)
		fields = append(fields, format.FieldView{Name: r.names[f], Data: buf[at:len(buf):len(buf)]})
	}
	return key, fields, buf
}

// AppendTar appends sample i as an ordinary shard holds it: the headers and the content of a member
// for each field.
func (r *Rows) AppendTar(dst []byte, i int) []byte {
	var buf [128]byte
	return r.Block.AppendTar(dst, i, r.AppendKey(buf[:0], i))
}
