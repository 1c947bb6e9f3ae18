package codec

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/format/tarblock"
)

// rawFrame stores data as raw blocks that end at the given places and every 128 KiB.
func rawFrame(data []byte, ends []int) []byte {
	frame, begin := appendFrameHeader(nil, len(data)), 0
	for _, end := range append(ends, len(data)) {
		for {
			n := min(end-begin, rawBlock)
			h := uint32(n) << 3
			if begin+n == len(data) && end == len(data) {
				h |= 1
			}
			frame = append(append(frame, byte(h), byte(h>>8), byte(h>>16)), data[begin:begin+n]...)
			if begin += n; begin == end {
				break
			}
		}
	}
	return append(frame, 0, 0, 0, 0)
}

// membersOf describes the members of consecutive parts of a buffer.
func membersOf(buf []byte, parts []Segment) (out []string, err error) {
	w := tarblock.Walker{}
	for _, s := range parts {
		w.Buf, w.Off = buf[:s.End], int64(s.Begin)
		var m tarblock.Member
		for {
			ok, err := w.Next(&m)
			if err != nil {
				return out, err
			}
			if !ok {
				break
			}
			out = append(out, fmt.Sprintf("%d %s %x", m.Header-int64(s.Begin-s.At), m.Name, Checksum(buf[m.Payload:m.Payload+m.Size])))
		}
	}
	return out, nil
}

// sameMembers compares the members in the segments of a frame with those of the frame decoded.
func sameMembers(t *testing.T, data, frame []byte) (moved bool) {
	t.Helper()
	want, wantErr := membersOf(data, []Segment{{0, len(data), 0}})
	d := NewDecoder(false)
	defer d.Close()
	stored := bytes.Clone(frame)
	parts, err := d.Segments(stored, format.Row{Stored: uint32(len(frame)), Decoded: uint32(len(data)), Codec: format.CodecRaw})
	if err != nil {
		t.Fatal(err)
	}
	at := 0
	for i, s := range parts {
		if s.At != at || s.Begin >= s.End || i > 0 && s.Begin < parts[i-1].End {
			t.Fatalf("segments %v", parts)
		}
		if !bytes.Equal(stored[s.Begin:s.End], data[at:at+s.End-s.Begin]) {
			t.Fatalf("segment %v has other bytes", s)
		}
		at += s.End - s.Begin
	}
	if at != len(data) {
		t.Fatalf("segments of %d bytes, the block has %d", at, len(data))
	}
	got, err := membersOf(stored, parts)
	if (err != nil) != (wantErr != nil) {
		t.Fatalf("error %v, decoded %v", err, wantErr)
	}
	if wantErr == nil && strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Fatalf("members\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	return !bytes.Equal(stored, frame)
}

// TestSegments finds the members of frames as the Writer cuts them, and cut anywhere: in headers,
// between a long name and its member, in payloads.
func TestSegments(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for i := range 300 {
		var b tarblock.Builder
		for k := range 1 + rnd.IntN(8) {
			size := rnd.IntN(3 * rawBlock)
			if i%2 == 0 {
				size = rnd.IntN(2000) * rnd.IntN(2)
			}
			at := b.Member(fmt.Sprintf("%s%d.f", strings.Repeat("n", rnd.IntN(300)*rnd.IntN(2)), k), size)
			for j := range size {
				b.Buf[at+j] = byte(j*7 + k)
			}
		}
		frame := AppendRawFrame(nil, b.Buf, b.Cuts, b.Payloads)
		if moved := sameMembers(t, b.Buf, frame); moved && len(b.Buf) <= rawBlock {
			t.Error("a frame of one raw block was changed")
		}
		var ends []int
		for end := 0; end < len(b.Buf); end += 1 + rnd.IntN(5000)*(1+rnd.IntN(30)*rnd.IntN(2)) {
			ends = append(ends, end)
		}
		sameMembers(t, b.Buf, rawFrame(b.Buf, ends))
	}
}

// FuzzSegments cuts any bytes into raw blocks.
func FuzzSegments(f *testing.F) {
	var b tarblock.Builder
	b.Member(strings.Repeat("n", 200)+".a", 600)
	b.Member("x.a", 0)
	f.Add(b.Buf, uint16(300), uint16(700))
	f.Fuzz(func(t *testing.T, data []byte, first, step uint16) {
		if len(data) == 0 || len(data) > MaxSingle {
			return
		}
		var ends []int
		for end := int(first); end < len(data); end += int(step) + 1 {
			ends = append(ends, end)
		}
		sameMembers(t, data, rawFrame(data, ends))
	})
}
