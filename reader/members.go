package reader

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/tarblock"
	"github.com/shardtool/shardtool/reader/internal/fetch"
	"github.com/shardtool/shardtool/reader/internal/window"
)

// tarRecord is the unit of the tar format.
const tarRecord = 512

// maxHeaders bounds a member's header records: twice what the longest name (format.MaxName) takes,
// with room.
const maxHeaders = 16 << 10

// visitor sees the members of a sample. Functions may be nil. An error from header, payload or
// padding ends the walk.
type visitor struct {
	// member is called with each member's header, and the size of its payload as the header has it.
	// It ends the walk there by returning true.
	member  func(key, field []byte, size int64) (stop bool)
	header  func([]byte) error
	payload func([]byte) error
	padding func([]byte) error
	// enough, asked after each member, ends the walk early.
	enough func() bool
}

// members follows the members of a block whose decoded bytes come in pieces, and shows the members
// of one sample to a visitor. It reads a sample of gigabytes in little memory. It is for one
// goroutine.
type members struct {
	visitor
	want    int                   // number in the block of the sample to show; -1 for none
	shows   func(sample int) bool // in place of want: which samples to show, all of the block's
	foreign bool                  // the archive is another tool's

	done   bool
	begun  bool // a member was seen
	sample int  // number in the block of the member at hand
	key    []byte
	head   []byte // header records of a member that have come so far
	left   int64  // bytes of payload to come
	pad    int64  // bytes of padding after it
	open   bool   // a member's payload or padding is not over
}

// placed adds the place of a block to an error.
func placed(f *fetch.Result, err error) error {
	return format.Place{Shard: f.Shard.Name, Block: f.Block, Offset: f.Offset}.Wrap(err)
}

// errEnough ends a walk.
var errEnough = errors.New("enough")

// whole takes a block in one piece.
func (m *members) whole(p []byte, place func(error) error) error {
	if err := m.write(p, place); err != nil {
		return err
	}
	return m.end(place)
}

// write takes the next piece. place adds the position to what is wrong with the block; errors of
// the visitor are returned as they are.
func (m *members) write(p []byte, place func(error) error) error {
	for len(p) > 0 && !m.done {
		var err error
		if m.open {
			p, err = m.content(p)
		} else {
			p, err = m.headers(p, place)
		}
		if err == errEnough {
			m.done = true
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// end returns an error unless the block held the sample.
func (m *members) end(place func(error) error) error {
	if m.done {
		return nil
	}
	if m.open || len(m.head) > 0 {
		return place(fmt.Errorf("%w: the block ends inside a member", format.ErrCorrupt))
	}
	if !m.begun || m.sample < m.want {
		return place(fmt.Errorf("%w: the block ends before its sample %d", format.ErrCorrupt, m.want))
	}
	m.done = true
	return nil
}

func (m *members) shown() bool {
	if m.shows != nil {
		return m.shows(m.sample)
	}
	return m.sample == m.want
}

// content passes on payload and padding.
func (m *members) content(p []byte) ([]byte, error) {
	n := int(min(int64(len(p)), m.left))
	if n > 0 && m.shown() && m.payload != nil {
		if err := m.payload(p[:n]); err != nil {
			return nil, err
		}
	}
	m.left -= int64(n)
	p = p[n:]
	if m.left > 0 {
		return p, nil
	}
	n = int(min(int64(len(p)), m.pad))
	if n > 0 && m.shown() && m.padding != nil {
		if err := m.padding(p[:n]); err != nil {
			return nil, err
		}
	}
	m.pad -= int64(n)
	if m.pad == 0 {
		m.open = false
		if m.shown() && m.enough != nil && m.enough() {
			return nil, errEnough
		}
	}
	return p[n:], nil
}

// headers collects a member's header records until all are there.
func (m *members) headers(p []byte, place func(error) error) ([]byte, error) {
	if m.foreign {
		return m.foreignHeaders(p, place)
	}
	need, err := m.headerLen()
	if err != nil {
		return nil, place(err)
	}
	n := min(len(p), need-len(m.head))
	m.head = append(m.head, p[:n]...)
	p = p[n:]
	if need, err = m.headerLen(); err != nil {
		return nil, place(err)
	}
	if len(m.head) < need {
		return p, nil
	}
	// Partial: the payload is not there yet.
	w := tarblock.Walker{Buf: m.head, Partial: true}
	var found tarblock.Member
	if ok, err := w.Next(&found); err != nil || !ok {
		return nil, place(window.InBlock(err))
	}
	return p, m.begin(&found)
}

// foreignHeaders is headers for archives of other tools. It skips entries that are not regular
// files.
func (m *members) foreignHeaders(p []byte, place func(error) error) ([]byte, error) {
	e, need, err := tarblock.ReadForeignEntry(m.head)
	if err == nil && need > 0 {
		n := min(need-len(m.head), len(p))
		m.head = append(m.head, p[:n]...)
		p = p[n:]
		e, need, err = tarblock.ReadForeignEntry(m.head)
	}
	switch {
	case err == nil && e.Type == 0 && need == 0:
		err = fmt.Errorf("%w: the archive ends inside the block", format.ErrCorrupt)
		fallthrough
	case err != nil:
		return nil, place(window.InBlock(err))
	case need > 0:
		return p, nil
	case e.Type != '0':
		m.head = m.head[:0]
		return p, nil
	}
	if err := format.CheckMember(e.Name); err != nil {
		return nil, place(err)
	}
	return p, m.begin(&e.Member)
}

// headerLen returns the length of the headers as far as it is known: a long name has a record in
// front.
func (m *members) headerLen() (int, error) {
	need := tarRecord
	for len(m.head) >= need {
		h := m.head[need-tarRecord : need]
		if h[156] != 'L' && h[156] != 'x' {
			break
		}
		digits, _, _ := bytes.Cut(h[124:136], []byte{0})
		size, err := strconv.ParseUint(string(digits), 8, 32)
		if need += tarRecord + (int(size)+tarRecord-1)/tarRecord*tarRecord; err != nil || need > maxHeaders {
			return 0, fmt.Errorf("%w: long name record of length %q", format.ErrCorrupt, digits)
		}
	}
	return need, nil
}

func (m *members) begin(found *tarblock.Member) error {
	key, field := format.SplitName(found.Name)
	switch {
	case !m.begun:
		m.begun = true
	case !bytes.Equal(key, m.key):
		if m.shows == nil && m.shown() {
			return errEnough
		}
		m.sample++
	}
	m.key = append(m.key[:0], key...)
	m.left, m.pad, m.open = found.Size, found.End()-found.Payload-found.Size, true
	if m.shown() {
		if m.member != nil && m.member(key, field, found.Size) {
			return errEnough
		}
		if m.header != nil {
			if err := m.header(m.head); err != nil {
				return err
			}
		}
	}
	m.head = m.head[:0]
	if m.left == 0 && m.pad == 0 {
		m.open = false
		if m.shown() && m.enough != nil && m.enough() {
			return errEnough
		}
	}
	return nil
}
