package parquet

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"strings"

	"github.com/google/flatbuffers/go"
	"github.com/klauspost/compress/zstd"

	"github.com/shardtool/shardtool/format"
)

// Messages of Arrow's IPC format, checked before the library decodes them: it trusts lengths, and
// follows offsets without a bound on their depth.
// https://arrow.apache.org/docs/format/Columnar.html

// ipcMagic begins and ends an Arrow file. A stream has none.
const ipcMagic = "ARROW1"

// The kinds of messages that data have.
const (
	ipcSchema, ipcDictionary, ipcRecords = 1, 2, 3
	// maxIPCMeta bounds the metadata of a message and the footer of a file, and maxFields and maxNames
	// a schema.
	maxIPCMeta = 16 << 20
	maxFields  = 1 << 16
	maxNames   = 64 << 20
	// maxIPCWindow bounds the memory of a zstd decoder.
	maxIPCWindow = 128 << 20
)

// message is where a message is, and what it is.
type message struct {
	off        int64 // of its prefix
	meta, body int64 // sizes; meta includes the prefix
	kind       byte
	rows       int64  // of records
	head       []byte // the metadata, where they are not read from off
}

// ipcTable returns the root of a flat buffer.
func ipcTable(b []byte) flatbuffers.Table {
	return flatbuffers.Table{Bytes: b, Pos: flatbuffers.GetUOffsetT(b)}
}

// ipcChild returns the table in a slot.
func ipcChild(t *flatbuffers.Table, slot flatbuffers.VOffsetT) (child flatbuffers.Table, ok bool) {
	o := flatbuffers.UOffsetT(t.Offset(slot))
	if o == 0 {
		return child, false
	}
	return flatbuffers.Table{Bytes: t.Bytes, Pos: t.Indirect(o + t.Pos)}, true
}

// ipcVector returns the beginning and the length of the vector in a slot.
func ipcVector(t *flatbuffers.Table, slot flatbuffers.VOffsetT) (at flatbuffers.UOffsetT, n int) {
	o := flatbuffers.UOffsetT(t.Offset(slot))
	if o == 0 {
		return 0, 0
	}
	return t.Vector(o), t.VectorLen(o)
}

// prefix reads the length before the metadata of a message. size counts the prefix, which had no
// mark before version 0.15. The end of a stream has length 0.
func prefix(b []byte) (size, length int64) {
	if n := binary.LittleEndian.Uint32(b); n != math.MaxUint32 {
		return 4, int64(n)
	}
	return 8, int64(binary.LittleEndian.Uint32(b[4:]))
}

// messages lists the messages of a file: its schema, then dictionaries and records in order. nulls
// are the parts of columns that have nulls, by their numbers in the schema.
func messages(r *readerAt, size int64) (list []message, nulls map[int]bool, err error) {
	l := &ipcList{r: r, size: size, nulls: map[int]bool{}}
	err = r.protect(func() error {
		head, err := l.bytes(0, min(size, 8))
		switch {
		case err != nil:
			return err
		case strings.HasPrefix(string(head), "FEA1"):
			return fmt.Errorf("it is in the first format of Feather, which Arrow has replaced: in Python, pyarrow.feather.write_feather(pyarrow.feather.read_table(OLD), NEW) writes it again")
		case strings.HasPrefix(string(head), ipcMagic):
			list, err = l.file()
		default:
			list, err = l.stream()
		}
		return err
	})
	return list, l.nulls, err
}

// ipcList reads the metadata of messages, and with it what follows, because messages may be small.
type ipcList struct {
	r    *readerAt
	size int64
	buf  []byte
	from int64
	// nulls is as messages returns it, so far.
	nulls map[int]bool
}

// bytes returns n bytes at off, which are in the file, until the next call.
func (l *ipcList) bytes(off, n int64) ([]byte, error) {
	if off < 0 || n < 0 || off > l.size-n {
		return nil, corruptf("it is cut off: %d bytes at %d are outside of its %d", n, off, l.size)
	}
	if off < l.from || off+n > l.from+int64(len(l.buf)) {
		const window = 64 << 10
		l.from, l.buf = off, resize(l.buf, int(min(l.size-off, max(n, window))))
		if _, err := l.r.ReadAt(l.buf, off); err != nil {
			return nil, err
		}
	}
	return l.buf[off-l.from:][:n], nil
}

// message reads the message at off. Its meta is 0 at the end of a stream.
func (l *ipcList) message(off int64) (m message, err error) {
	b, err := l.bytes(off, min(8, l.size-off))
	if err != nil || len(b) < 4 {
		return m, corruptf("it is cut off: it lacks the mark of its end at byte %d", off)
	}
	if len(b) < 8 && binary.LittleEndian.Uint32(b) != 0 {
		return m, corruptf("it is cut off in the message at byte %d", off)
	}
	lead, length := prefix(b)
	switch {
	case length == 0:
		m.off = off + lead
		return m, nil
	case length > maxIPCMeta:
		return m, corruptf("the message at byte %d states metadata of %d bytes, and this version reads %d", off, length,
			maxIPCMeta)
	}
	if b, err = l.bytes(off+lead, length); err != nil {
		return m, err
	}
	t := ipcTable(b)
	m = message{off: off, meta: lead + length, kind: t.GetByteSlot(6, 0), body: t.GetInt64Slot(10, 0)}
	if m.body < 0 || m.body > l.size-off-m.meta {
		return m, corruptf("it is cut off, or damaged: the message at byte %d states a body of %d bytes", off, m.body)
	}
	head, ok := ipcChild(&t, 8)
	switch {
	case !ok:
		return m, corruptf("the message at byte %d has no header", off)
	case m.kind == ipcSchema:
		return m, ipcFields(&head)
	case m.kind == ipcRecords:
		if m.rows = head.GetInt64Slot(4, 0); m.rows < 0 || m.rows > math.MaxInt32 {
			return m, corruptf("the message at byte %d states %d rows", off, m.rows)
		}
		at, n := ipcVector(&head, 6)
		for part := range n {
			if head.GetInt64(at+8) != 0 {
				l.nulls[part] = true
			}
			at += 16
		}
	case m.kind != ipcDictionary:
		if m.kind == 4 || m.kind == 5 {
			return m, fmt.Errorf("the message at byte %d holds a tensor, and only tables are read: save the tensor as .npy", off)
		}
		return m, corruptf("the message at byte %d is neither a schema, a dictionary nor records", off)
	}
	return m, nil
}

// stream lists the messages of a stream, up to the mark of its end: without it the stream was cut.
func (l *ipcList) stream() (list []message, err error) {
	for off := int64(0); ; {
		m, err := l.message(off)
		switch {
		case err != nil:
			return nil, err
		case len(list) == 0 && m.kind != ipcSchema:
			return nil, corruptf("it does not begin with a schema: it is not an Arrow stream")
		case len(list) > 0 && m.kind == ipcSchema:
			return nil, fmt.Errorf("another schema begins at byte %d: divide it into two files", off)
		case m.meta == 0 && m.off != l.size:
			return nil, corruptf("%d bytes follow the end of the stream: divide it into two files", l.size-m.off)
		case m.meta == 0:
			return list, nil
		}
		list = append(list, m)
		off += m.meta + m.body
	}
}

// file lists the messages that the footer names. Dictionaries come first.
func (l *ipcList) file() ([]message, error) {
	const tail = 4 + len(ipcMagic)
	b, err := l.bytes(l.size-int64(tail), int64(tail))
	if err != nil {
		return nil, err
	}
	if string(b[4:]) != ipcMagic {
		return nil, corruptf("it ends with %q instead of %q: it is cut off", b[4:], ipcMagic)
	}
	n := int64(binary.LittleEndian.Uint32(b))
	if n > maxIPCMeta {
		return nil, corruptf("it states a footer of %d bytes, and this version reads %d", n, maxIPCMeta)
	}
	if b, err = l.bytes(l.size-int64(tail)-n, n); err != nil {
		return nil, err
	}
	footer := ipcTable(bytes.Clone(b))
	schema, ok := ipcChild(&footer, 6)
	if !ok {
		return nil, corruptf("its footer has no schema")
	}
	if err := ipcFields(&schema); err != nil {
		return nil, err
	}
	list := []message{{kind: ipcSchema, head: schemaMessage(footer.Bytes, schema.Pos, footer.GetInt16Slot(4, 0))}}
	if list, err = l.blocks(list, &footer, 8, ipcDictionary); err != nil {
		return nil, err
	}
	return l.blocks(list, &footer, 10, ipcRecords)
}

// schemaMessage makes metadata whose header is the schema at a place in a footer. The footer is
// what readers of files go by: polars writes the schema before the records without its length.
func schemaMessage(footer []byte, at flatbuffers.UOffsetT, version int16) []byte {
	// of what precedes the footer, and where its table and the offset of the schema are
	const size, table, header = 32, 16, 24
	b := make([]byte, size, size+len(footer))
	le := binary.LittleEndian
	le.PutUint32(b, table)
	for i, v := range []uint16{10, 12, 4, 6, 8} { // sizes of the list of slots and of the table; version, kind, header
		le.PutUint16(b[4+2*i:], v)
	}
	le.PutUint32(b[table:], table-4) // back to the list of slots
	le.PutUint16(b[table+4:], uint16(version))
	b[table+6] = ipcSchema
	le.PutUint32(b[header:], size-header+uint32(at))
	return append(b, footer...)
}

// blocks appends the messages of one of the footer's lists.
func (l *ipcList) blocks(list []message, footer *flatbuffers.Table, slot flatbuffers.VOffsetT,
	kind byte) ([]message, error) {
	const block = 24 // offset, size of the metadata with its prefix, size of the body
	at, n := ipcVector(footer, slot)
	for range n {
		off, meta, body := footer.GetInt64(at), int64(footer.GetInt32(at+8)), footer.GetInt64(at+16)
		at += block
		m, err := l.message(off)
		if err != nil {
			return nil, err
		}
		if m.kind != kind || m.body != body || m.meta != meta {
			return nil, corruptf("its footer and the message at byte %d disagree", off)
		}
		list = append(list, m)
	}
	return list, nil
}

// ipcFields checks that the fields of a schema are few, not nested deeply, and of types that are
// read.
func ipcFields(schema *flatbuffers.Table) error {
	w := &ipcWalk{}
	at, n := ipcVector(schema, 6)
	err := w.fields(schema, at, n, nil)
	if err == nil {
		err = w.texts(schema, 8)
	}
	return err
}

type ipcWalk struct {
	count  int
	length int
}

func (w *ipcWalk) fields(t *flatbuffers.Table, at flatbuffers.UOffsetT, n int, above []string) error {
	for range n {
		f := flatbuffers.Table{Bytes: t.Bytes, Pos: t.Indirect(at)}
		at += 4
		if w.count++; w.count > maxFields || len(above) > maxDepth {
			return corruptf("its schema has more than %d fields, or %d below each other", maxFields, maxDepth)
		}
		name := ""
		if o := flatbuffers.UOffsetT(f.Offset(4)); o != 0 {
			name = string(f.ByteVector(o + f.Pos))
		}
		path := append(above[:len(above):len(above)], name)
		if w.length += len(name); w.length > maxNames {
			return corruptf("the names in its schema are longer than %d bytes", maxNames)
		}
		if what := unreadType(&f); what != "" {
			return fmt.Errorf("column %.200q is of %s, which this version does not read: write the file without it, or with another type", strings.Join(path, "."), what)
		}
		if err := w.texts(&f, 16); err != nil {
			return err
		}
		below, kids := ipcVector(&f, 14)
		if err := w.fields(&f, below, kids, path); err != nil {
			return err
		}
	}
	return nil
}

// unreadType names the type of a field if the library does not know it, and would take the file for
// a damaged one.
func unreadType(f *flatbuffers.Table) string {
	const integer, decimal, fixedList, last = 2, 7, 16, 26
	kind := f.GetByteSlot(8, 0)
	typ, ok := ipcChild(f, 10)
	switch {
	case kind > last:
		return fmt.Sprintf("type number %d", kind)
	case !ok:
		return ""
	case kind == integer && typ.GetInt32Slot(4, 0) > 64:
		return fmt.Sprintf("integers of %d bits", typ.GetInt32Slot(4, 0))
	case kind == decimal && typ.GetInt32Slot(8, 128) < 128:
		return fmt.Sprintf("decimals of %d bits", typ.GetInt32Slot(8, 128))
	case kind == fixedList && typ.GetInt32Slot(4, 0) == 0:
		return "lists of no elements"
	}
	return ""
}

// texts counts the lengths of the keys and values in a slot.
func (w *ipcWalk) texts(t *flatbuffers.Table, slot flatbuffers.VOffsetT) error {
	at, n := ipcVector(t, slot)
	for range n {
		pair := flatbuffers.Table{Bytes: t.Bytes, Pos: t.Indirect(at)}
		at += 4
		for _, slot := range []flatbuffers.VOffsetT{4, 6} {
			_, n := ipcVector(&pair, slot)
			if n < 0 || n > maxNames-w.length {
				return corruptf("the metadata in its schema are longer than %d bytes", maxNames)
			}
			w.length += n
		}
	}
	return nil
}

// decodedSize returns the sum of the sizes of a message's buffers, which it checks against the
// body.
func decodedSize(meta, body []byte, kind byte) (total int64, err error) {
	t := ipcTable(meta)
	batch, ok := ipcChild(&t, 8)
	if ok && kind == ipcDictionary {
		batch, ok = ipcChild(&batch, 6)
	}
	if !ok {
		return 0, corruptf("a message has no header")
	}
	packed := ipcPlain
	if c, ok := ipcChild(&batch, 10); ok {
		packed = int(c.GetByteSlot(4, 0))
	}
	at, n := ipcVector(&batch, 12) // how many buffers the columns of views have, which the library allocates
	views := int64(0)
	_, most := ipcVector(&batch, 8)
	for range n {
		more := batch.GetInt64(at)
		at += 8
		if views += more; more < 0 || views < 0 || views > int64(most) {
			return 0, corruptf("its columns state %d buffers of views, and the records have %d", more, most)
		}
	}
	at, n = ipcVector(&batch, 8)
	for range n {
		off, length := batch.GetInt64(at), batch.GetInt64(at+8)
		at += 16
		if off < 0 || length < 0 || off > int64(len(body))-length {
			return 0, corruptf("a buffer of %d bytes at %d is outside of a body of %d", length, off, len(body))
		}
		if length, err = unpackedSize(body[off:off+length], packed); err != nil {
			return 0, err
		}
		if total += length; total < 0 || total > math.MaxInt64/2 {
			return 0, corruptf("the sizes of its buffers are not possible")
		}
	}
	return total, nil
}

// The compressions of buffers.
const ipcPlain, ipcZstd = -1, 1

// unpackedSize returns the size of a buffer.
func unpackedSize(b []byte, packed int) (int64, error) {
	if packed == ipcPlain || len(b) == 0 {
		return int64(len(b)), nil
	}
	if len(b) < 8 {
		return 0, corruptf("a compressed buffer has %d bytes", len(b))
	}
	n := int64(binary.LittleEndian.Uint64(b))
	switch {
	case n == -1: // stored
		return int64(len(b)) - 8, nil
	case n < 0:
		return 0, corruptf("a compressed buffer states %d bytes", n)
	case packed == ipcZstd:
		var head zstd.Header
		if err := head.Decode(b[8:]); err != nil {
			return 0, corruptf("a buffer does not decode: %w", err)
		}
		if head.WindowSize > maxIPCWindow {
			return 0, fmt.Errorf("%w: a buffer was compressed with a window above %d MiB", format.ErrTooLarge,
				maxIPCWindow>>20)
		}
	}
	return n, nil
}
