package parquet

import (
	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/google/flatbuffers/go"
)

// storedColumns are the columns, not made yet, of records that are stored as they are in memory.
// The library would copy them.
type storedColumns struct {
	body           []byte
	nodes, buffers [][2]int64 // of the next columns: length and nulls, offset and length
	more           []int64    // numbers of further buffers of views
}

// columnsOf returns the columns of records, which point into their body. It returns nil where the
// library has to decode them: if they are compressed, or in the layout before version 1.0.
func columnsOf(meta, body []byte, schema *arrow.Schema) (columns []arrow.ArrayData) {
	t := ipcTable(meta)
	batch, ok := ipcChild(&t, 8)
	const version1 = 4
	if !ok || batch.Offset(10) != 0 || t.GetInt16Slot(4, 0) < version1 {
		return nil
	}
	s := &storedColumns{body: body, nodes: ipcPairs(&batch, 6), buffers: ipcPairs(&batch, 8)}
	at, n := ipcVector(&batch, 12)
	for range n {
		s.more = append(s.more, batch.GetInt64(at))
		at += 8
	}
	for _, f := range schema.Fields() {
		columns = append(columns, s.column(f.Type))
	}
	return columns
}

// ipcPairs returns the vector of pairs of numbers in a slot.
func ipcPairs(t *flatbuffers.Table, slot flatbuffers.VOffsetT) (pairs [][2]int64) {
	at, n := ipcVector(t, slot)
	for range n {
		pairs = append(pairs, [2]int64{t.GetInt64(at), t.GetInt64(at + 8)})
		at += 16
	}
	return pairs
}

// column makes the next column. It panics, as the library does, if there are too few parts.
func (s *storedColumns) column(t arrow.DataType) arrow.ArrayData {
	node, stored := s.nodes[0], plainType(t)
	s.nodes = s.nodes[1:]
	layout := stored.Layout()
	var bufs []*memory.Buffer
	for _, spec := range layout.Buffers {
		if spec.Kind == arrow.KindAlwaysNull { // not stored
			bufs = append(bufs, nil)
			continue
		}
		bufs = append(bufs, s.buffer())
	}
	if node[1] == 0 && layout.Buffers[0].Kind == arrow.KindBitmap { // it may be there all the same
		bufs[0] = nil
	}
	if layout.VariadicSpec != nil {
		for range s.more[0] {
			bufs = append(bufs, s.buffer())
		}
		s.more = s.more[1:]
	}
	var kids []arrow.ArrayData
	if nested, ok := stored.(arrow.NestedType); ok {
		for _, f := range nested.Fields() {
			kids = append(kids, s.column(f.Type))
		}
	}
	return array.NewData(t, int(node[0]), bufs, kids, int(node[1]), 0)
}

// buffer returns the next buffer, which decodedSize has checked.
func (s *storedColumns) buffer() *memory.Buffer {
	at := s.buffers[0]
	s.buffers = s.buffers[1:]
	if at[1] == 0 {
		return memory.NewBufferBytes(nil)
	}
	return memory.NewBufferBytes(s.body[at[0] : at[0]+at[1]])
}
