package extsort

import (
	"bytes"
	"io"
	"os"
	"slices"
	"testing"

	"errors"
)

// FuzzSort holds the merge of spilled runs against a sort in memory, for records cut out of the
// input in steps.
func FuzzSort(f *testing.F) {
	f.Add([]byte("banana"), uint8(2), uint8(3))
	f.Add([]byte{}, uint8(0), uint8(1))
	f.Add(bytes.Repeat([]byte{0, 255}, 100), uint8(7), uint8(1))
	f.Fuzz(func(t *testing.T, data []byte, step, perRun uint8) {
		data = data[:min(len(data), 64)]
		s := New(t.TempDir(), 1)
		defer s.Close()
		var want [][]byte
		for i := 0; i < len(data); i += 1 + int(step) {
			rec := data[i:min(len(data), i+1+int(step))]
			want = append(want, rec, nil) // empty ones, too
			for _, r := range [][]byte{rec, nil} {
				if err := s.Add(r); err != nil {
					t.Fatal(err)
				}
			}
			if len(want)%(2+int(perRun)) == 0 && len(s.spans) > 0 {
				if err := s.spill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		slices.SortFunc(want, bytes.Compare)
		for pass := range 2 {
			i := 0
			for rec, err := range s.All() {
				if err != nil {
					t.Fatal(err)
				}
				if i >= len(want) || !bytes.Equal(rec, want[i]) {
					t.Fatalf("pass %d: record %d is %x", pass, i, rec)
				}
				i++
			}
			if i != len(want) || s.Len() != int64(i) {
				t.Fatalf("%d of %d records", i, len(want))
			}
		}
	})
}

// TestCutFile: the temporary file lost its end, at a record's border or not. That is an error, not
// fewer records.
func TestCutFile(t *testing.T) {
	for cut := int64(1); cut < 40; cut++ {
		s := New(t.TempDir(), 1)
		for range 10 {
			if err := s.Add([]byte("nine bytes"[:9])); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.spill(); err != nil {
			t.Fatal(err)
		}
		if err := s.file.Truncate(s.Spilled() - cut); err != nil {
			t.Fatal(err)
		}
		var last error
		for _, err := range s.All() {
			last = err
		}
		if !errors.Is(last, io.ErrUnexpectedEOF) {
			t.Fatalf("%d bytes less: %v", cut, last)
		}
		s.Close()
	}
}

// TestClosed: a Sorter that is closed gives an error, and holds no file.
func TestClosed(t *testing.T) {
	s := New(t.TempDir(), 1)
	if err := s.Add([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := s.spill(); err != nil {
		t.Fatal(err)
	}
	file := s.file
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := file.Stat(); !errors.Is(err, os.ErrClosed) {
		t.Fatal(err)
	}
	if s.Add(nil) == nil {
		t.Fatal("took a record")
	}
	for _, err := range s.All() {
		if err == nil {
			t.Fatal("gave a record")
		}
	}
}
