package mapped

import (
	"bytes"
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/format/codec"
	"github.com/shardtool/shardtool/objstore"
)

// object is a file in memory.
type object struct {
	mem       []byte
	version   objstore.Version
	unsettled int // calls of Map that fail
	cold      bool
}

func (o *object) ReadAt(context.Context, []byte, int64) error { panic("read") }
func (o *object) Info(context.Context) (objstore.Info, error) { panic("info") }
func (o *object) Close() error                                { return nil }
func (o *object) Cached(int64, int) bool                      { return !o.cold }
func (o *object) Version() (objstore.Version, error)          { return o.version, nil }
func (o *object) Map() (_ []byte, v objstore.Version, err error) {
	if o.unsettled > 0 {
		o.unsettled--
		return nil, v, objstore.ErrChanged
	}
	return o.mem, o.version, nil
}

// touch is a change of the file's attributes alone.
func (o *object) touch() { o.version.Changed++ }

// twoBlocks opens an object of three blocks and returns the second and third, the second of which has
// two rows.
func twoBlocks(t *testing.T) (*object, *Blocks) {
	t.Helper()
	o := &object{mem: bytes.Repeat([]byte("0123456789"), 40)}
	rows := []format.Row{{Stored: 100, Samples: 1}, {Stored: 100, Samples: 1}, {Stored: 120}, {Stored: 80, Samples: 2}}
	at := 0
	for i := range rows {
		n := int(rows[i].Stored)
		rows[i].Decoded, rows[i].CRC = rows[i].Stored, codec.UpdateChecksum(0, o.mem[at:at+n])
		at += n
	}
	file, err := Open("s.tar", o, rows)
	if err != nil {
		t.Fatal(err)
	}
	return o, &Blocks{File: file, Rows: rows[1:], From: 1, Block: 1, Offset: 100}
}

func usable(b *Blocks) (ok bool, seen string) {
	ok = b.Usable(func(decoded []byte) error { seen = string(decoded); return nil })
	return ok, seen
}

func TestUsable(t *testing.T) {
	o, b := twoBlocks(t)
	if ok, seen := usable(b); !ok || seen != string(o.mem[100:]) {
		t.Fatal(ok, seen)
	}
	if b.Usable(func([]byte) error { return errors.New("of the block's own") }) {
		t.Error("a block that cannot be opened")
	}
	o.cold = true
	if ok, _ := usable(b); ok {
		t.Error("a block that is not in the page cache")
	}
	o.cold = false
	if b.Changed() {
		t.Error("a file that has not changed")
	}
	if o.touch(); !b.Changed() {
		t.Error("a file that may have changed")
	}
	for _, bad := range []func(*object, *Blocks){
		func(o *object, b *Blocks) { o.mem[250] ^= 1 },
		func(o *object, b *Blocks) { b.Offset = 101 },
		func(o *object, b *Blocks) { b.Offset = -1 },
		func(o *object, b *Blocks) { b.Rows[2].CRC++ },
	} {
		o, b := twoBlocks(t)
		bad(o, b)
		if ok, _ := usable(b); ok {
			t.Error("a damaged block")
		}
	}
}

// TestCheckedOnce: a checksum is compared once for each row of a file, not for each use.
func TestCheckedOnce(t *testing.T) {
	o, b := twoBlocks(t)
	first := *b
	first.Rows = b.Rows[:1]
	if ok, _ := usable(&first); !ok {
		t.Fatal("not usable")
	}
	o.mem[150] ^= 1 // of the row that was compared
	if ok, _ := usable(b); !ok {
		t.Error("a row was compared twice")
	}
	o.mem[250] ^= 1 // of another
	if ok, _ := usable(&Blocks{File: b.File, Rows: b.Rows[1:], From: 2, Block: 1, Offset: 200}); !ok {
		t.Error("a row was compared twice")
	}
	o, b = twoBlocks(t)
	o.mem[250] ^= 1
	if ok, _ := usable(&first); !ok { // another file's
		t.Error("not usable")
	}
	if ok, _ := usable(b); ok {
		t.Error("a row that was not compared yet was used")
	}
}

// TestCopy copies from files that change before, during and after.
func TestCopy(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(o *object, copied int) // after copy has run that often
		calls  int
		want   string // of the error
	}{
		{"nothing", func(*object, int) {}, 1, ""},
		{"attributes", func(o *object, n int) {
			if n == 1 {
				o.touch()
			}
		}, 2, ""},
		{"attributes twice", func(o *object, n int) {
			if n <= 2 {
				o.touch()
			}
		}, 3, ""},
		{"attributes, a moment ago", func(o *object, n int) {
			if n == 1 {
				o.touch()
				o.unsettled = 2
			}
		}, 2, ""},
		{"content", func(o *object, n int) {
			o.touch()
			o.mem[230] ^= 1
		}, 1, "shard s.tar: block 1 at 200"},
		{"content of the last block", func(o *object, n int) {
			o.touch()
			o.mem[399] ^= 1
		}, 1, "shard s.tar: block 2 at 320"},
		{"content of another block", func(o *object, n int) {
			if n == 1 {
				o.touch()
				o.mem[50] ^= 1
			}
		}, 2, ""},
		{"content, once", func(o *object, n int) {
			if n == 1 {
				o.touch()
				o.mem[230] ^= 1
			}
		}, 1, "shard s.tar: block 1 at 200"},
	} {
		o, b := twoBlocks(t)
		if ok, _ := usable(b); !ok {
			t.Fatal("not usable")
		}
		var got []byte
		calls := 0
		err := Copy([]*File{b.File}, func() []*Blocks { return []*Blocks{b} }, func() {
			got = append(got[:0], b.Bytes()...)
			calls++
			c.change(o, calls)
		})
		if c.want == "" {
			if err != nil || !bytes.Equal(got, bytes.Repeat([]byte("0123456789"), 30)) {
				t.Errorf("%s: %q, %v", c.name, got, err)
			}
		} else if !errors.Is(err, objstore.ErrChanged) || !errors.Is(err, format.ErrCorrupt) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
		if calls != c.calls {
			t.Errorf("%s: copied %d times, want %d", c.name, calls, c.calls)
		}
		if b.Stale() != (c.name != "nothing") {
			t.Errorf("%s: the file is stale: %v", c.name, b.Stale())
		}
	}
}

// TestCopyNamesTheFile: where one of several files changes all the time, the error names that one.
func TestCopyNamesTheFile(t *testing.T) {
	defer func(n int) { tries = n }(tries)
	tries = 3
	_, first := twoBlocks(t)
	o, second := twoBlocks(t)
	second.shard = "t.tar"
	o.touch()
	o.unsettled = tries
	err := Copy([]*File{first.File, second.File}, func() []*Blocks { return []*Blocks{first, second} }, func() {})
	if !errors.Is(err, objstore.ErrChanged) || !strings.Contains(err.Error(), "t.tar") {
		t.Error(err)
	}
	if first.Stale() || !second.Stale() {
		t.Error("another file is stale")
	}
}

// TestHas: marks are of the rows that a file was opened for.
func TestHas(t *testing.T) {
	_, b := twoBlocks(t)
	other := slices.Clone(b.rows)
	if !b.Has(b.rows) || !b.Has(other) {
		t.Error("other rows")
	}
	if other[3].CRC++; b.Has(other) || b.Has(other[:3]) || b.Has(nil) {
		t.Error("the same rows")
	}
}

// TestCopyOfNothing: without mapped files there is nothing to compare.
func TestCopyOfNothing(t *testing.T) {
	ran := false
	if err := Copy(nil, nil, func() { ran = true }); err != nil || !ran {
		t.Error(ran, err)
	}
}

// TestOtherPanics: only faults of mapped files are errors.
func TestOtherPanics(t *testing.T) {
	_, b := twoBlocks(t)
	for _, f := range []func(){
		func() { panic("other") },
		func() { make([]*Blocks, 1)[0].Block = 1 },
		func() { _ = b.Bytes()[:1000] },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("a panic was taken for a fault")
				}
			}()
			_ = guard([]*File{b.File}, f)
		}()
	}
}

// TestPressure counts faults as the system does.
func TestPressure(t *testing.T) {
	defer func(f func() int64) { countFaults = f }(countFaults)
	defer func(f, u int64) { pressure.faults.Store(f); pressure.until.Store(u) }(pressure.faults.Load(), pressure.until.Load())
	defer func(at int64) { pressure.at.Store(at) }(pressure.at.Load())
	pressure.faults.Store(0)
	pressure.until.Store(0)
	for _, step := range []struct {
		faults int64
		want   bool
	}{
		{5000, false},               // of the program's start
		{5000 + fewFaults/2, false}, // as when small batches are copied: few at a time
		{5000 + fewFaults, false},
		{5000 + fewFaults + 1, true},
		{5000 + fewFaults + 1, true}, // for a while
	} {
		countFaults = func() int64 { return step.faults }
		look()
		pressure.at.Store(math.MaxInt64) // a moment ago, also where the test is slow
		if got := Pressed(); got != step.want {
			t.Errorf("after %d faults: %v", step.faults, got)
		}
	}
	_, b := twoBlocks(t)
	if ok, _ := usable(b); ok {
		t.Error("blocks are usable under pressure")
	}
	pressure.until.Store(1)
	if Pressed() {
		t.Error("it does not end")
	}
	if ok, _ := usable(b); !ok {
		t.Error("not usable afterwards")
	}
}
