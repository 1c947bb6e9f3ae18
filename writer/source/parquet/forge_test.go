package parquet_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"testing"

	pq "github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/compress"
)

// node is a value in the compact protocol of Thrift, which footers and headers of pages are written
// in (github.com/apache/thrift, doc/specs/thrift-compact-protocol.md).
type node struct {
	id   int64 // of a field
	kind byte
	n    int64  // of an integer
	raw  []byte // of a string or a double
	of   byte   // the kind of elements
	in   []node // fields or elements
}

// parseNode reads a value and returns what follows it.
func parseNode(t *testing.T, b []byte, kind byte) (node, []byte) {
	uvarint := func() uint64 {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			t.Fatal("no number")
		}
		b = b[n:]
		return v
	}
	integer := func() int64 {
		v := uvarint()
		return int64(v>>1) ^ -int64(v&1)
	}
	v := node{kind: kind}
	switch kind {
	case 1, 2: // a boolean is its kind
	case 3:
		v.n, b = int64(b[0]), b[1:]
	case 4, 5, 6:
		v.n = integer()
	case 7:
		v.raw, b = b[:8], b[8:]
	case 8:
		n := uvarint()
		v.raw, b = b[:n], b[n:]
	case 9, 10:
		n := uint64(b[0] >> 4)
		v.of, b = b[0]&15, b[1:]
		if n == 15 {
			n = uvarint()
		}
		for range n {
			var e node
			e, b = parseNode(t, b, v.of)
			v.in = append(v.in, e)
		}
	case 12:
		for id := int64(0); ; {
			head := b[0]
			if b = b[1:]; head == 0 {
				break
			}
			if delta := int64(head >> 4); delta > 0 {
				id += delta
			} else {
				id = integer()
			}
			var f node
			f, b = parseNode(t, b, head&15)
			f.id = id
			v.in = append(v.in, f)
		}
	default:
		t.Fatal("kind", kind)
	}
	return v, b
}

func (v *node) append(b []byte) []byte {
	zigzag := func(b []byte, n int64) []byte { return binary.AppendUvarint(b, uint64(n<<1)^uint64(n>>63)) }
	switch v.kind {
	case 3:
		b = append(b, byte(v.n))
	case 4, 5, 6:
		b = zigzag(b, v.n)
	case 7:
		b = append(b, v.raw...)
	case 8:
		b = append(binary.AppendUvarint(b, uint64(len(v.raw))), v.raw...)
	case 9, 10:
		b = binary.AppendUvarint(append(b, 0xf0|v.of), uint64(len(v.in)))
		for i := range v.in {
			b = v.in[i].append(b)
		}
	case 12:
		for i := range v.in {
			b = zigzag(append(b, v.in[i].kind), v.in[i].id)
			b = v.in[i].append(b)
		}
		b = append(b, 0)
	}
	return b
}

// field returns a field of a struct, or nil.
func (v *node) field(id int64) *node {
	for i := range v.in {
		if v.in[i].id == id {
			return &v.in[i]
		}
	}
	return nil
}

// forge calls try once for each value that v and what is in it could falsely have, and puts back
// what was there.
func (v *node) forge(path string, try func(what string)) {
	was := *v
	as := func(what string, change func()) {
		change()
		try(path + " " + what)
		*v = was
	}
	switch v.kind {
	case 1, 2:
		as("not", func() { v.kind = 3 - v.kind })
	case 3, 4, 5, 6:
		for _, n := range []int64{0, -1, was.n - 1, was.n + 1, math.MaxInt32, math.MaxInt64} {
			if n != was.n && (v.kind != 3 || n == int64(byte(n))) {
				as(fmt.Sprint(was.n, " as ", n), func() { v.n = n })
			}
		}
	case 7, 8:
		as("empty", func() { v.kind, v.raw = 8, nil })
		as("longer", func() { v.kind, v.raw = 8, append(slices.Clip(was.raw), "\x00\xff"...) })
	case 9, 10:
		as("empty", func() { v.in = nil })
		if len(was.in) > 0 {
			as("short", func() { v.in = was.in[1:] })
			as("long", func() { v.in = append(slices.Clip(was.in), was.in[0]) })
		}
	case 12:
		for i := range was.in {
			as(fmt.Sprint("without ", was.in[i].id), func() { v.in = append(slices.Clone(was.in[:i]), was.in[i+1:]...) })
		}
	}
	for i := range v.in {
		v.in[i].forge(fmt.Sprint(path, ".", i, "/", v.in[i].id), try)
	}
}

// forgedFiles have lists, nulls and dictionaries, without compression, so that levels can be
// forged.
func forgedFiles(t *testing.T) map[string][]byte {
	files := map[string][]byte{}
	for name, version := range map[string]pq.DataPageVersion{"pages 1": pq.DataPageV1, "pages 2": pq.DataPageV2} {
		tab := smallTable()
		tab.fields = append(tab.fields, listOf("list", leafNode("element", pq.Repetitions.Optional, nil, pq.Types.Int32, 0)))
		numbers, defs, reps := []int32{}, []int16{}, []int16{}
		for i := range 300 {
			reps = append(reps, 0)
			defs = append(defs, int16(i%4))
			if i%4 == 3 {
				numbers = append(numbers, int32(i), int32(i))
				reps, defs = append(reps, 1), append(defs, 3)
			}
		}
		for i := range tab.groups {
			tab.groups[i] = append(tab.groups[i], data{values: numbers, defs: defs, reps: reps})
		}
		tab.props = []pq.WriterProperty{pq.WithDataPageVersion(version), pq.WithCompression(compress.Codecs.Uncompressed), pq.WithDataPageSize(256), pq.WithBatchSize(64)}
		files[name] = write(t, tab)
	}
	return files
}

// TestForged reads files with one false value in a footer, a header of a page or the levels of a
// page: no panic, no hang, no memory that the file does not justify, and no row lost without an
// error.
func TestForged(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine: make test runs it without the race detector")
	}
	for name, content := range forgedFiles(t) {
		t.Run(name, func(t *testing.T) {
			if attempt(t, "whole", content) {
				t.Fatal("the file is not whole")
			}
			length := int(binary.LittleEndian.Uint32(content[len(content)-8:]))
			body := content[: len(content)-8-length : len(content)-8-length]
			footer, rest := parseNode(t, content[len(body):len(content)-8], 12)
			if len(rest) > 0 {
				t.Fatalf("%d bytes behind the footer", len(rest))
			}
			file := func(body []byte) []byte {
				b := footer.append(body)
				return append(binary.LittleEndian.AppendUint32(b, uint32(len(b)-len(body))), "PAR1"...)
			}
			tried, found := 0, 0
			try := func(what string, content []byte) {
				tried++
				if attempt(t, what, content) {
					found++
				}
			}
			if attempt(t, "written again", file(body)) {
				t.Fatal("the footer is not whole")
			}
			footer.forge("footer", func(what string) { try(what, file(body)) })

			groups := footer.field(4)
			for c := range groups.in[0].field(1).in {
				chunk := groups.in[0].field(1).in[c].field(3)
				was := chunk.in
				start := chunk.field(9).n
				if at := chunk.field(11); at != nil && at.n > 0 {
					start = min(start, at.n)
				}
				pages := content[start : start+chunk.field(7).n]
				// chunk written again behind the others, with other bytes for those of a page's header
				moved := func(header []byte, from, to int64) []byte {
					chunk.in = slices.Clone(was)
					for _, id := range []int64{9, 11} {
						if at := chunk.field(id); at != nil && at.n > 0 {
							if at.n-start > from {
								at.n += int64(len(header)) - (to - from)
							}
							at.n += int64(len(body)) - start
						}
					}
					again := append(append(slices.Clone(pages[:from]), header...), pages[to:]...)
					chunk.field(7).n = int64(len(again))
					b := file(append(body, again...))
					chunk.in = was
					return b
				}
				for at, page := int64(0), 0; at < int64(len(pages)); page++ {
					header, rest := parseNode(t, pages[at:], 12)
					end := int64(len(pages) - len(rest))
					header.forge(fmt.Sprintf("column %d, page %d", c, page), func(what string) { try(what, moved(header.append(nil), at, end)) })
					next := end + header.field(3).n
					for i := end; i < min(end+40, next); i++ { // the levels come first
						for _, mask := range []byte{1, 0xff} {
							bad := slices.Clone(content)
							bad[start+i] ^= mask
							try(fmt.Sprintf("column %d, page %d, byte %d ^ %#x", c, page, i-end, mask), bad)
						}
					}
					at = next
					if page == 2 { // the others are like it
						break
					}
				}
			}
			t.Logf("%d of %d forgeries were found", found, tried)
			if tried < 1000 || found < tried/4 {
				t.Errorf("%d of %d forgeries were found", found, tried)
			}
		})
	}
}
