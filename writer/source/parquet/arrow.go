package parquet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/ipc"
	"github.com/apache/arrow/go/v17/arrow/memory"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/input/stream"
)

// plausible is the decoded size of records that is believed whatever their stored size. Beyond, it
// may be 1,024 times as large.
const plausible = 32 << 20

// arrowReader reads the records of one file, in order, or from any one on. It gives messages to the
// library after it has checked them.
type arrowReader struct {
	list   []message
	at     *readerAt
	remote bool
	limit  int64 // of the decoded size of a message

	ipc       *ipc.Reader
	plain     bool           // its records may be stored as they are
	from      *stream.Stream // of a remote file, at pos
	cancel    context.CancelFunc
	pos       int64
	next      int // in list
	want      int // records before it are not decoded
	buf       []byte
	dictSizes int64
}

// restart begins with the schema.
func (a *arrowReader) restart() (*arrow.Schema, error) {
	a.next, a.dictSizes = 0, 0
	var err error
	if a.ipc, err = ipc.NewReaderFromMessageReader(a); err != nil {
		return nil, a.explain(err)
	}
	return a.ipc.Schema(), nil
}

func (a *arrowReader) explain(err error) error {
	if errors.Is(err, format.ErrTooLarge) {
		return err
	}
	var fault runtime.Error
	if errors.As(err, &fault) {
		return corruptf("it does not decode%w", &panicked{fault})
	}
	return corruptf("it does not decode: %w", err)
}

// records decodes records number no. Their columns are valid until the next call.
func (a *arrowReader) records(no int) (columns []arrow.ArrayData, err error) {
	want := -1
	for i, m := range a.list {
		if m.kind == ipcRecords {
			no--
		}
		if no < 0 {
			want = i
			break
		}
	}
	if a.ipc == nil || a.next > want {
		if _, err := a.restart(); err != nil {
			return nil, err
		}
	}
	a.want = want
	if a.plain {
		meta, body, err := a.fetch(a.list[want])
		if err != nil {
			return nil, a.explain(err)
		}
		if columns = columnsOf(meta, body, a.ipc.Schema()); columns != nil {
			return columns, nil
		}
		a.plain = false
	}
	rec, err := a.ipc.Read()
	if err != nil {
		a.ipc = nil
		return nil, a.explain(err)
	}
	for _, column := range rec.Columns() {
		columns = append(columns, column.Data())
	}
	return columns, nil
}

// Message implements ipc.MessageReader.
func (a *arrowReader) Message() (*ipc.Message, error) {
	for a.next < a.want && a.list[a.next].kind == ipcRecords {
		a.next++
	}
	if a.next == len(a.list) {
		return nil, io.EOF
	}
	m := a.list[a.next]
	a.next++
	meta, body, err := a.fetch(m)
	if err != nil {
		return nil, err
	}
	t := ipcTable(meta)
	if head, ok := ipcChild(&t, 8); ok && m.kind == ipcSchema { // little-endian
		a.plain = head.GetInt16Slot(4, 0) == 0 &&
			!slices.ContainsFunc(a.list, func(m message) bool { return m.kind == ipcDictionary })
	}
	return ipc.NewMessage(memory.NewBufferBytes(meta), memory.NewBufferBytes(body)), nil
}

// fetch reads a message and checks it. It is valid until the next call.
func (a *arrowReader) fetch(m message) (meta, body []byte, err error) {
	if a.limit > 0 && m.meta+m.body > a.limit {
		return nil, nil, fmt.Errorf("%w: %d bytes of records are stored together, more than the limit of %d",
			ErrPageMemory, m.body, a.limit)
	}
	if m.head != nil {
		return m.head, nil, nil
	}
	a.buf = resize(a.buf, int(m.meta+m.body))
	if err := a.read(m.off); err != nil {
		return nil, nil, err
	}
	lead, _ := prefix(a.buf)
	meta, body = a.buf[lead:m.meta:m.meta], a.buf[m.meta:]
	if m.kind != ipcSchema {
		size, err := decodedSize(meta, body, m.kind)
		if err == nil && size > plausible && size/1024 > m.body {
			err = corruptf("%d bytes of records state that they decode to %d", m.body, size)
		}
		if m.kind == ipcDictionary {
			a.dictSizes += size
			size = a.dictSizes
		}
		if err == nil && size > a.limit {
			err = fmt.Errorf("%w: records take %d bytes together, more than the limit of %d", ErrPageMemory, size,
				a.limit)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	return meta, body, nil
}

// read fills buf from off on. Remote files are read ahead.
func (a *arrowReader) read(off int64) error {
	if !a.remote {
		_, err := a.at.ReadAt(a.buf, off)
		return err
	}
	if a.from == nil || a.pos != off {
		a.close()
		ctx, cancel := context.WithCancel(context.WithoutCancel(a.at.ctx))
		a.cancel = cancel
		last := a.list[len(a.list)-1]
		var err error
		if a.from, err = stream.Open(ctx, a.at.obj, last.off+last.meta+last.body, true, stream.Plain, off); err != nil {
			a.at.err = err
			return err
		}
		a.pos = off
	}
	defer context.AfterFunc(a.at.ctx, a.cancel)()
	n, err := io.ReadFull(a.from, a.buf)
	if a.pos += int64(n); err != nil {
		a.close()
		a.at.err = cmp.Or(a.at.ctx.Err(), err)
	}
	return err
}

// Retain implements ipc.MessageReader.
func (a *arrowReader) Retain() {}

// Release implements ipc.MessageReader.
func (a *arrowReader) Release() {}

func (a *arrowReader) close() {
	if a.cancel != nil {
		a.cancel()
	}
	if a.from != nil {
		a.from.Close()
		a.from = nil
	}
}
