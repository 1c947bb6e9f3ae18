package parquet_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	pq "github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/schema"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source/parquet"
)

// foreign are files that another writer made.
func foreign(t testing.TB) map[string][]byte {
	t.Helper()
	names, err := filepath.Glob("../../../testdata/parquet/*.parquet")
	if err != nil || len(names) < 5 {
		t.Fatal(names, err)
	}
	files := map[string][]byte{}
	for _, name := range names {
		if files[filepath.Base(name)], err = os.ReadFile(name); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// mostAllocated is what reading a damaged file of some kilobytes may allocate in all: buffers,
// decoders and batches, no lengths that the file claims. A brotli or zstd decoder takes some MiB by
// itself.
const mostAllocated = 256 << 20

// attempt reads a damaged file. Reading must end, and errors name the file, and of rows their row
// group and column.
func attempt(t *testing.T, what string, content []byte) (failed bool) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	defer func() {
		if r := recover(); r != nil {
			t.Fatalf("%s: panic: %v", what, r)
		}
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > mostAllocated {
			t.Errorf("%s: %d MiB were allocated", what, n>>20)
		}
	}()
	plain := func(err error) {
		if strings.Contains(err.Error(), "runtime error") {
			t.Errorf("%s: an error of Go's run-time in %q", what, err)
		}
	}
	src, err := parquet.New(t.Context(), inputs(t, store(t, map[string][]byte{"x.parquet": content})), parquet.Options{})
	if err != nil {
		plain(err)
		if !strings.Contains(err.Error(), "x.parquet") && !errors.Is(err, writer.ErrOptions) {
			t.Errorf("%s: no file in %q", what, err)
		}
		return true
	}
	defer src.Close()
	total, _ := src.Total()
	got, skipped, err := rows(src)
	if err != nil {
		t.Errorf("%s: %v: rows behind the damage are lost", what, err)
		return true
	}
	if int64(len(got)+len(skipped)) != total {
		t.Errorf("%s: %d samples and %d errors of %d rows", what, len(got), len(skipped), total)
	}
	for _, err := range skipped {
		plain(err)
		if text := err.Error(); !strings.Contains(text, "x.parquet: row group ") || !strings.Contains(text, ", row ") {
			t.Errorf("%s: no place in %q", what, err)
		}
		if errors.Is(err, format.ErrCorrupt) && !strings.Contains(err.Error(), "column ") {
			t.Errorf("%s: no column in %q", what, err)
		}
	}
	return len(skipped) > 0
}

// TestFlips flips every 97th byte of files, in two ways.
func TestFlips(t *testing.T) {
	files := foreign(t)
	files["arrow"] = write(t, smallTable())
	for name, content := range files {
		t.Run(name, func(t *testing.T) {
			if attempt(t, "whole", content) {
				t.Fatal("the file is not whole")
			}
			failed, tried := 0, 0
			for at := 0; at < len(content); at += 97 {
				for _, mask := range []byte{0x01, 0xff} {
					bad := append([]byte{}, content...)
					bad[at] ^= mask
					tried++
					if attempt(t, fmt.Sprintf("byte %d ^ %#x", at, mask), bad) {
						failed++
					}
				}
			}
			t.Logf("%d of %d were found", failed, tried)
			if failed == 0 {
				t.Error("no damage was found")
			}
		})
	}
}

// TestCuts truncates files, with and without their end, as a copy with a hole would be.
func TestCuts(t *testing.T) {
	for name, content := range foreign(t) {
		t.Run(name, func(t *testing.T) {
			for n := 0; n < len(content); n += len(content)/40 + 1 {
				if !attempt(t, fmt.Sprintf("%d bytes", n), content[:n]) {
					t.Errorf("%d of %d bytes were taken for a file", n, len(content))
				}
				hole := append([]byte{}, content...)
				clear(hole[n:min(n+200, len(hole))])
				attempt(t, fmt.Sprintf("hole at %d", n), hole)
				attempt(t, fmt.Sprintf("short at %d", n), append(append([]byte{}, content[:n]...), content[min(n+300, len(content)):]...))
			}
		})
	}
}

func smallTable() table {
	text, numbers, defs := []string{}, []int64{}, []int16{}
	for i := range 300 {
		text = append(text, fmt.Sprint("some text ", i%20))
		numbers = append(numbers, int64(i))
		defs = append(defs, int16(i%2))
	}
	return table{
		fields: schema.FieldList{
			leafNode("text", pq.Repetitions.Required, schema.StringLogicalType{}, pq.Types.ByteArray, 0),
			leafNode("n", pq.Repetitions.Optional, nil, pq.Types.Int64, 0),
		},
		groups: [][]data{{{values: text}, {values: numbers[:150], defs: defs}}, {{values: text}, {values: numbers[:150], defs: defs}}},
	}
}

// TestFooters reads footers with false lengths, trees of columns and row groups.
func TestFooters(t *testing.T) {
	content := write(t, smallTable())
	end := func(n uint32, magic string) []byte {
		bad := append([]byte{}, content[:len(content)-8]...)
		return append(binary.LittleEndian.AppendUint32(bad, n), magic...)
	}
	footer := func(f string) []byte {
		return append(append(append([]byte("PAR1"), f...), binary.LittleEndian.AppendUint32(nil, uint32(len(f)))...), "PAR1"...)
	}
	deep := "\x15\x02\x19\xfc\x80\x80\x40" + strings.Repeat("\x48\x01a\x15\x02\x00", 1<<20) + "\x00" // columns in columns
	for what, c := range map[string]struct {
		content []byte
		want    string
	}{
		"empty":              {nil, "0 bytes are too few"},
		"short":              {[]byte("PAR1PAR1"), "8 bytes are too few"},
		"text":               {[]byte("this is no Parquet file"), "the file is truncated, or is not Parquet"},
		"encrypted":          {end(100, "PARE"), "the file is encrypted"},
		"length 4 GiB":       {end(1<<32-1, "PAR1"), "a footer of 4294967295 bytes"},
		"length of file":     {end(uint32(len(content)), "PAR1"), "claim a footer of"},
		"length 0":           {end(0, "PAR1"), "its footer"},
		"length 1":           {end(1, "PAR1"), "its footer"},
		"no columns":         {footer("\x15\x02\x19\x1c\x48\x01a\x15\x00\x00\x00"), "there are no columns"},
		"no tree":            {footer("\x15\x02\x19\x2c\x48\x01a\x15\x04\x00\x48\x01b\x00\x00"), "do not make a tree"},
		"negative children":  {footer("\x15\x02\x19\x2c\x48\x01a\x15\x03\x00\x48\x01b\x00\x00"), "do not make a tree"},
		"many children":      {footer("\x15\x02\x19\x2c\x48\x01a\x15\xfe\xff\xff\xff\x0f\x00\x48\x01b\x00\x00"), "do not make a tree"},
		"deep":               {footer(deep), "columns nest deeper"},
		"list of 2^31":       {footer("\x15\x02\x19\xfc\xff\xff\xff\xff\x07"), "ends in the middle"},
		"structs in structs": {footer(strings.Repeat("\x1c", 1<<20)), "Thrift"},
	} {
		t.Run(what, func(t *testing.T) {
			_, err := parquet.New(t.Context(), inputs(t, store(t, map[string][]byte{"x.parquet": c.content})), parquet.Options{})
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "x.parquet") {
				t.Errorf("%v, want %q", err, c.want)
			}
			attempt(t, what, c.content)
		})
	}
}

// FuzzFile: no file causes a panic, a hang or a large allocation.
func FuzzFile(f *testing.F) {
	for _, content := range foreign(f) {
		f.Add(content)
	}
	f.Add(write(f, smallTable()))
	f.Fuzz(func(t *testing.T, content []byte) {
		if len(content) > 1<<20 {
			return
		}
		src, err := parquet.New(t.Context(), inputs(t, store(t, map[string][]byte{"x.parquet": content})), parquet.Options{})
		if err != nil {
			return
		}
		defer src.Close()
		for range 10_000 {
			if _, err := src.Next(t.Context()); err != nil && !strings.Contains(err.Error(), "row group") {
				return
			}
		}
	})
}
