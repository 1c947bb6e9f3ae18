package corpus

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"iter"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"unicode/utf8"

	"github.com/klauspost/compress/zstd"
)

var kinds = []struct {
	name   string
	make   func(Options) iter.Seq[Sample]
	fields []string
	mean   int
	digest string // of 300 samples, seed 7
}{
	{"text", Text, []string{"txt"}, 3_000, "4f0de4d6d32b538ba004c30907fdf939f34d8cfb12d5da665a1dc33304532263"},
	{"images", Images, []string{"jpg"}, 100_000, "3a81f8241aa1543f85c39d66b1a77e3d8ebe9c4fa321c6d344974c0ba29698bf"},
	{"tensors", Tensors, []string{"u8"}, 150_528, "b0a7aec57db87be62984c56a761cb292f737b0bcb63da62d363c68f70f01cb51"},
}

// digest is the SHA-256 over all that samples holds, cut points included.
func digest(samples iter.Seq[Sample]) string {
	h := sha256.New()
	for s := range samples {
		fmt.Fprintf(h, "%s %d\n", s.Key, len(s.Fields))
		for _, f := range s.Fields {
			fmt.Fprintf(h, "%s %d\n", f.Name, len(f.Data))
			h.Write(f.Data)
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Figures in reports are of these very bytes: a change here makes them another
// corpus's figures.
func TestBytesNeverChange(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			o := Options{Samples: 300, Seed: 7}
			samples := k.make(o)
			first := digest(samples)
			if again := digest(samples); again != first {
				t.Errorf("a second range gave %s after %s", again, first)
			}
			if first != k.digest {
				t.Errorf("digest %s, want %s", first, k.digest)
			}
			o.Seed++
			if digest(k.make(o)) == first {
				t.Error("another seed gave the same bytes")
			}
			// A larger corpus continues where a smaller one ended.
			var head []string
			for _, n := range []int{20, 40} {
				var keys []string
				for s := range k.make(Options{Samples: n, Seed: 7}) {
					keys = append(keys, s.Key+digest(slices.Values([]Sample{s})))
				}
				if head != nil && !slices.Equal(head, keys[:len(head)]) {
					t.Error("40 samples do not begin with the 20")
				}
				head = keys
			}
		})
	}
}

func TestSamples(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			const n = 4000
			keys := make(map[string]bool)
			folders := make(map[string]int)
			var total, largest int64
			for s := range k.make(Options{Samples: n, MeanSize: 2_000, Seed: 3}) {
				if keys[s.Key] {
					t.Fatalf("key %s twice", s.Key)
				}
				keys[s.Key] = true
				folders[filepath.Dir(s.Key)] += len(s.Fields)
				var names []string
				for _, f := range s.Fields {
					names = append(names, f.Name)
					checkField(t, s, f)
				}
				if !slices.Equal(names, k.fields) {
					t.Fatalf("key %s: fields %v, want %v", s.Key, names, k.fields)
				}
				size := s.Size()
				if len(s.Fields) == 3 {
					size = int64(len(s.Fields[1].Data))
				}
				total += size
				largest = max(largest, size)
			}
			if len(keys) != n {
				t.Errorf("%d samples, want %d", len(keys), n)
			}
			for folder, files := range folders {
				if files > 1000 {
					t.Errorf("folder %s holds %d files", folder, files)
				}
			}
			if mean := float64(total) / n; mean < 1_900 || mean > 2_100 {
				t.Errorf("mean size %.0f, want about 2000", mean)
			}
			if k.name == "tensors" {
				if largest != 2_000 {
					t.Errorf("the largest has %d bytes, all should have 2000", largest)
				}
				return
			}
			if largest < 10_000 || largest > 100_000 {
				t.Errorf("largest sample %d bytes: not the tail of a lognormal", largest)
			}
		})
	}
}

// checkField reports a field whose bytes do not have the format of its name.
func checkField(t *testing.T, s Sample, f Field) {
	t.Helper()
	ok := len(f.Data) > 0
	switch f.Name {
	case "txt":
		ok = ok && utf8.Valid(f.Data)
	case "jpg":
		ok = ok && string(f.Data[:4]) == "\xff\xd8\xff\xe0"
	case "cls":
		folder, err := strconv.Atoi(filepath.Dir(s.Key))
		class, err2 := strconv.Atoi(string(f.Data))
		ok = err == nil && err2 == nil && folder == class
	case "json":
		var v struct {
			Key   string
			Bytes int
		}
		ok = json.Unmarshal(f.Data, &v) == nil && v.Key == s.Key && v.Bytes > 0
	}
	if !ok {
		t.Fatalf("key %s: field %s holds %.60q", s.Key, f.Name, f.Data)
	}
}

// What compression makes of a corpus is the point of it.
func TestRatio(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine: make test runs it without the race detector")
	}
	for _, c := range []struct {
		kind     int
		low, top float64
	}{{0, 2.5, 3.5}, {1, 0.99, 1.01}} {
		k := kinds[c.kind]
		t.Run(k.name, func(t *testing.T) {
			var all []byte
			for s := range k.make(Options{Samples: 8 << 20 / k.mean}) {
				for _, f := range s.Fields {
					all = append(all, f.Data...)
				}
			}
			for _, level := range []zstd.EncoderLevel{zstd.SpeedDefault, zstd.SpeedBetterCompression} {
				enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(level), zstd.WithEncoderConcurrency(1))
				if err != nil {
					t.Fatal(err)
				}
				for _, block := range []int{1 << 20, 4 << 20} {
					stored := 0
					for b := range slices.Chunk(all, block) {
						stored += len(enc.EncodeAll(b, nil))
					}
					ratio := float64(len(all)) / float64(stored)
					t.Logf("level %v, blocks of %d MiB: ratio %.2f", level, block>>20, ratio)
					if ratio < c.low || ratio > c.top {
						t.Errorf("level %v, blocks of %d MiB: ratio %.2f, want %.2f to %.2f", level, block>>20, ratio, c.low, c.top)
					}
				}
			}
		})
	}
}

func TestWriteFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	samples := Images(Options{Samples: 700, MeanSize: 200})
	files, bytes, err := WriteFiles(dir, samples)
	if err != nil {
		t.Fatal(err)
	}
	var want int64
	for s := range samples {
		want += s.Size()
		for _, f := range s.Fields {
			got, err := os.ReadFile(filepath.Join(dir, s.Key+"."+f.Name))
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != string(f.Data) {
				t.Fatalf("%s.%s: the file differs from the sample", s.Key, f.Name)
			}
		}
	}
	if files != 700 || bytes != want {
		t.Errorf("WriteFiles says %d files of %d bytes, want 700 of %d", files, bytes, want)
	}
	found := 0
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			found++
		}
		return err
	})
	if err != nil || found != files {
		t.Errorf("%d files below the folder (%v), want %d", found, err, files)
	}
}

func TestWriteFilesSaysWhichSample(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(dir, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	files, _, err := WriteFiles(dir, Text(Options{Samples: 1}))
	if err == nil || files != 0 {
		t.Fatalf("wrote %d files below a file, error %v", files, err)
	}
}

func BenchmarkCorpus(b *testing.B) {
	for _, k := range kinds {
		b.Run("kind="+k.name, func(b *testing.B) {
			var bytes int64
			next, stop := iter.Pull(k.make(Options{Samples: math.MaxInt}))
			defer stop()
			for b.Loop() {
				s, _ := next()
				bytes += s.Size()
			}
			b.SetBytes(bytes / int64(b.N))
			b.ReportAllocs()
		})
	}
}
