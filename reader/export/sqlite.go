package export

import (
	"bufio"
	"encoding/binary"
	"io"
	"os"

	"github.com/shardtool/shardtool/internal/spill"
)

// database writes an SQLite database of tables and indexes whose rows come in order, as
// https://www.sqlite.org/fileformat2.html describes it: pages are written one after another to a
// temporary file: pages of a tree when they are full, and the first page last.
type database struct {
	f     *os.File
	out   *bufio.Writer
	pages uint32 // written so far, with the first
	lock  uint32 // the page that SQLite never uses
	err   error
}

const pageSize = 4096

// lockPage is the page of the byte 2^30, which SQLite locks: no table or index has it, and a database
// that is longer leaves it empty.
const lockPage = 1<<30/pageSize + 1

// object is a row of the schema.
type object struct {
	kind, name, table string
	root              uint32
	sql               string
}

func newDatabase() (*database, error) {
	f, err := spill.Create("")
	if err != nil {
		return nil, err
	}
	d := &database{f: f, out: bufio.NewWriterSize(f, 1<<20), lock: lockPage}
	d.write(make([]byte, pageSize))
	return d, nil
}

func (d *database) close() error { return spill.Close(d.f) }

func (d *database) reader() io.Reader {
	return io.NewSectionReader(d.f, 0, int64(d.pages)*pageSize)
}

// after returns the number of the page that is written after another one.
func (d *database) after(page uint32) uint32 {
	if page+1 == d.lock {
		return page + 2
	}
	return page + 1
}

// write appends a page and returns its number.
func (d *database) write(page []byte) uint32 {
	for number := d.after(d.pages); d.pages < number; d.pages++ {
		out := page
		if d.pages+1 == d.lock {
			out = make([]byte, pageSize)
		}
		if d.err == nil {
			_, d.err = d.out.Write(out)
		}
	}
	return d.pages
}

// finish writes the first page: the header of the file, and the schema.
func (d *database) finish(schema []object) error {
	if d.err == nil {
		d.err = d.out.Flush()
	}
	if d.err != nil {
		return d.err
	}
	head := make([]byte, 100)
	copy(head, "SQLite format 3\x00")
	binary.BigEndian.PutUint16(head[16:], pageSize)
	copy(head[18:], []byte{1, 1, 0, 64, 32, 32})
	for at, v := range map[int]uint32{24: 1, 28: d.pages, 40: 1, 44: 4, 56: 1, 92: 1, 96: 3_040_000} {
		binary.BigEndian.PutUint32(head[at:], v)
	}
	var p page
	for i, o := range schema {
		var sql any
		if o.sql != "" {
			sql = o.sql
		}
		p.add(d.cell(false, int64(i)+1, sqliteRecord(o.kind, o.name, o.table, int64(o.root), sql)))
	}
	first := p.bytes(leafTable, 0, len(head))
	copy(first, head)
	_, err := d.f.WriteAt(first, 0)
	return err
}

// The types of pages.
const (
	innerIndex = 2
	innerTable = 5
	leafIndex  = 10
	leafTable  = 13
)

// page is a page that is being filled.
type page struct {
	cells [][]byte
	size  int
}

// fits reports whether another cell has room, beside the header and the pointers.
func (p *page) fits(cell []byte) bool { return 12+p.size+len(cell)+2*len(p.cells)+2 <= pageSize }

func (p *page) add(cell []byte) {
	p.cells = append(p.cells, cell)
	p.size += len(cell)
}

// pop takes the last cell away.
func (p *page) pop() []byte {
	last := p.cells[len(p.cells)-1]
	p.cells = p.cells[:len(p.cells)-1]
	p.size -= len(last)
	return last
}

// bytes returns the page, whose own header begins at an offset. right is the last child of an inner
// page.
func (p *page) bytes(kind byte, right uint32, at int) []byte {
	out := make([]byte, pageSize)
	out[at] = kind
	binary.BigEndian.PutUint16(out[at+3:], uint16(len(p.cells)))
	pointers := at + 8
	if kind == innerIndex || kind == innerTable {
		binary.BigEndian.PutUint32(out[pointers:], right)
		pointers += 4
	}
	end := pageSize
	for i, cell := range p.cells {
		end -= len(cell)
		copy(out[end:], cell)
		binary.BigEndian.PutUint16(out[pointers+2*i:], uint16(end))
	}
	binary.BigEndian.PutUint16(out[at+5:], uint16(end))
	p.cells, p.size = p.cells[:0], 0
	return out
}

// tree is a B-tree that is filled in order: of a table by its row numbers, or of an index by its
// records. Of each level there is one page in memory.
type tree struct {
	d      *database
	index  bool
	levels []page // the leaf first
	last   int64  // row number of the last cell of the leaf
}

func (d *database) tree(index bool) *tree { return &tree{d: d, index: index, levels: make([]page, 1)} }

// add adds a row, or a record of an index, of integers and texts.
func (t *tree) add(row int64, values ...any) {
	cell := t.d.cell(t.index, row, sqliteRecord(values...))
	if t.levels[0].fits(cell) {
		t.levels[0].add(cell)
		t.last = row
		return
	}
	var up []byte
	if t.index { // the record between two pages is in the page above
		up = t.levels[0].pop()
	}
	child := t.d.write(t.levels[0].bytes(t.kind(0), 0, 0))
	if !t.index {
		up = appendVarint(nil, uint64(t.last))
	}
	t.levels[0].add(cell)
	t.last = row
	t.raise(1, child, up)
}

// raise adds a child and what is between it and the next one to a level.
func (t *tree) raise(level int, child uint32, between []byte) {
	if level == len(t.levels) {
		t.levels = append(t.levels, page{})
	}
	p := &t.levels[level]
	cell := append(binary.BigEndian.AppendUint32(nil, child), between...)
	if p.fits(cell) {
		p.add(cell)
		return
	}
	last := p.pop() // becomes the page's last child, and goes up
	child = t.d.write(p.bytes(t.kind(level), binary.BigEndian.Uint32(last), 0))
	p.add(cell)
	t.raise(level+1, child, last[4:])
}

func (t *tree) kind(level int) byte {
	switch {
	case level == 0 && t.index:
		return leafIndex
	case level == 0:
		return leafTable
	case t.index:
		return innerIndex
	}
	return innerTable
}

// finish writes the pages that are not full, and returns the number of the root.
func (t *tree) finish() (root uint32) {
	for level := range t.levels {
		root = t.d.write(t.levels[level].bytes(t.kind(level), root, 0))
	}
	return root
}

// cell returns a cell of a leaf: the length of the record, the number of a row in a table, and the
// record, of which the end is in pages of its own if it is long.
func (d *database) cell(index bool, row int64, record []byte) []byte {
	most := pageSize - 35
	if index {
		most = (pageSize-12)*64/255 - 23
	}
	out := appendVarint(nil, uint64(len(record)))
	if !index {
		out = appendVarint(out, uint64(row))
	}
	if len(record) <= most {
		return append(out, record...)
	}
	least := (pageSize-12)*32/255 - 23
	here := least + (len(record)-least)%(pageSize-4)
	if here > most {
		here = least
	}
	out = append(out, record[:here]...)
	out = binary.BigEndian.AppendUint32(out, d.after(d.pages))
	for rest := record[here:]; len(rest) > 0; {
		n := min(len(rest), pageSize-4)
		p := make([]byte, pageSize)
		copy(p[4:], rest[:n])
		if rest = rest[n:]; len(rest) > 0 {
			binary.BigEndian.PutUint32(p, d.after(d.after(d.pages)))
		}
		d.write(p)
	}
	return out
}

// sqliteRecord returns a record of integers and texts; nil is NULL.
func sqliteRecord(values ...any) []byte {
	var types, body []byte
	for _, v := range values {
		switch v := v.(type) {
		case nil:
			types = append(types, 0)
		case string:
			types = appendVarint(types, uint64(13+2*len(v)))
			body = append(body, v...)
		case int64:
			for i, bytes := range []int{1, 2, 3, 4, 6, 8} {
				if shift := 64 - 8*bytes; bytes == 8 || v<<shift>>shift == v {
					types = append(types, byte(i+1))
					body = append(body, binary.BigEndian.AppendUint64(nil, uint64(v))[8-bytes:]...)
					break
				}
			}
		}
	}
	n := len(types) + 1
	if n > 127 { // the length counts itself
		n++
	}
	return append(append(appendVarint(nil, uint64(n)), types...), body...)
}

// appendVarint appends a number as SQLite does: the highest 7 bits first, and the ninth byte has 8.
func appendVarint(out []byte, v uint64) []byte {
	if v >= 1<<56 {
		for shift := 57; shift >= 8; shift -= 7 {
			out = append(out, byte(v>>shift)|0x80)
		}
		return append(out, byte(v))
	}
	shift := 0
	for v>>(shift+7) > 0 {
		shift += 7
	}
	for ; shift > 0; shift -= 7 {
		out = append(out, byte(v>>shift)|0x80)
	}
	return append(out, byte(v)&0x7f)
}
