package writer

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/shardtool/shardtool/format"
)

// metaLeftOut is the key in the metadata of what was left out, a JSON object of rules and numbers:
// in a generation the names and the rows of the sources, in a shard the rows between its cursors,
// for a later run that adopts the shard.
const metaLeftOut = "left_out"

// counts are how many samples a run has left out so far.
type counts struct {
	left    RowsLeft
	skipped int64 // with null rows and duplicates
}

// skip counts a sample.
func (c *counts) skip(e *SampleError) {
	c.skipped++
	switch {
	case e.LeaveOut:
		c.left.Null++
	case errors.Is(e.Err, format.ErrDuplicate):
		c.left.Duplicate++
	}
}

// LeftOut counts the rows that a source left out by itself since it was opened, divided or moved by
// Seek: those before the place of Cursor, and after io.EOF also those behind that place, which a
// run that continues there reads again. Sources that leave out none need not count.
func LeftOut(src Source) (before, behind RowsLeft) {
	if l, ok := src.(leaver); ok {
		return l.LeftOut()
	}
	return before, behind
}

// mark is a place of the source, and what was left out before it.
type mark struct {
	cursor string
	counts
}

// mark is the place before the sample that the source returns next.
func (w *Writer) mark() mark {
	m := mark{w.input.cursor(), w.count}
	if w.input.leaver != nil {
		before, _ := w.input.leaver.LeftOut()
		m.left = m.left.Plus(before)
	}
	return m
}

// leftOut is what the shards that were adopted lack, and this run, whose source has ended.
func (w *Writer) leftOut() RowsLeft {
	all := w.adoptedLeft.Plus(w.count.left)
	if w.input.leaver != nil {
		before, behind := w.input.leaver.LeftOut()
		all = all.Plus(before).Plus(behind)
	}
	return all
}

// setLeftOut records what was left out, if there is any.
func setLeftOut(meta format.Metadata, left map[string]int64) {
	if len(left) == 0 {
		return
	}
	text, err := json.Marshal(left)
	if err != nil {
		panic("writer: left out: " + err.Error()) // numbers
	}
	meta[metaLeftOut] = string(text)
}

// leftOutBefore is what the run that wrote META left out.
func leftOutBefore(meta format.Metadata) (left map[string]int64, err error) {
	text, ok := meta[metaLeftOut]
	if !ok {
		return nil, nil
	}
	err = json.Unmarshal([]byte(text), &left)
	for rule, n := range left {
		if n < 0 && err == nil {
			err = fmt.Errorf("%q is %d", rule, n)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%w: metadata left_out is %.100q: %w", format.ErrCorrupt, text, err)
	}
	return left, nil
}
