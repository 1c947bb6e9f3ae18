package receive

import (
	"bytes"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/internal/format/npy"
)

// TestStacksNot begins with arrays of which a shard cannot have rows: they become ordinary samples,
// unless the parent asked for rows.
func TestStacksNot(t *testing.T) {
	wide := strings.Replace(fixedColumn, `"width":2`, `"width":16`, 1)
	named := func(name string) string { return strings.Replace(fixedColumn, `"x"`, `"`+name+`"`, 1) }
	header, rows := npy.AppendHeader(nil, "|u1", 2), []byte("aabb")
	for name, frame := range map[string][]byte{
		"128 bits":          columnFrame(2, wide, npy.AppendHeader(nil, "<f16", 1), make([]byte, 32)),
		"big-endian":        columnFrame(2, fixedColumn, npy.AppendHeader(nil, ">i2", 1), rows),
		"names of one file": columnFrame(2, named("x")+","+named("x.npy"), header, rows, header, rows),
		"the name of keys":  columnFrame(2, named("__key__.npy"), header, rows),
		"no name":           columnFrame(2, named(""), header, rows),
	} {
		s := New(&Begin{}, bytes.NewReader(append(frame, frameOf(kindEnd, nil)...)), nil, func(Place) error { return nil })
		if _, err := s.Next(t.Context()); err != nil || s.Stacks() {
			t.Errorf("%s: stacked %v, %v", name, s.Stacks(), err)
		}
		_ = s.Close()
	}
}
