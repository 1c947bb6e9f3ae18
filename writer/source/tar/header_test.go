package tar

import (
	"archive/tar"
	"bufio"
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// agrees checks that archive/tar finds what parse finds at the beginning of an archive.
func agrees(t *testing.T, archive []byte) (usual bool) {
	t.Helper()
	h, ok := parse(bufio.NewReaderSize(bytes.NewReader(archive), maxExtended+2*blockSize))
	if !ok {
		return false
	}
	in := bytes.NewReader(archive)
	want, err := tar.NewReader(in).Next()
	if err != nil {
		t.Fatalf("%+v, but archive/tar: %v", h, err)
	}
	sparse := want.PAXRecords["GNU.sparse.major"] != "" || want.PAXRecords["GNU.sparse.map"] != ""
	if at := int64(len(archive) - in.Len()); want.Typeflag != tar.TypeReg || sparse || want.Name != h.name || want.Size != h.size || at != h.len {
		t.Fatalf("%+v, but archive/tar: %+v, content at %d", h, want, at)
	}
	return true
}

// headersOf returns the headers of a member in an archive.
func headersOf(t testing.TB, h tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := tar.NewWriter(&b).WriteHeader(&h); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

var members = map[string]tar.Header{
	"ustar":       {Name: "a/b.txt", Size: 7, Mode: 0o644, ModTime: time.Unix(1_700_000_000, 0), Format: tar.FormatUSTAR, Uname: "me", Gname: "us"},
	"ustar, long": {Name: strings.Repeat("d/", 60) + "b.txt", Size: 1 << 30, Format: tar.FormatUSTAR},
	"gnu":         {Name: "a/b.txt", Size: 7, Format: tar.FormatGNU},
	"gnu, long":   {Name: strings.Repeat("d", 300) + ".txt", Size: 7, Format: tar.FormatGNU},
	"pax, time":   {Name: "a.txt", Size: 7, ModTime: time.Unix(1_700_000_000, 123_456_789), Format: tar.FormatPAX},
	"pax, name":   {Name: "ä/ö.txt", Size: 7, Format: tar.FormatPAX, AccessTime: time.Unix(5, 6), ChangeTime: time.Unix(-5, 0)},
	"pax, size":   {Name: "big.bin", Size: 1 << 40, Format: tar.FormatPAX, Uid: 1 << 30},
	"pax, labels": {Name: "a.txt", Size: 7, Format: tar.FormatPAX, PAXRecords: map[string]string{"SCHILY.xattr.user.x": "y\n", "comment": "c"}},
}

// TestUsualHeaders: what common programs write takes the short way, except a time before 1970.
func TestUsualHeaders(t *testing.T) {
	for name, h := range members {
		if got := agrees(t, headersOf(t, h)); got != (name != "pax, name") {
			t.Errorf("%s: the short way: %v", name, got)
		}
	}
	for name, h := range map[string]tar.Header{
		"folder":  {Name: "a/", Typeflag: tar.TypeDir},
		"link":    {Name: "a", Linkname: "b", Typeflag: tar.TypeSymlink},
		"vendor":  {Name: "a", Format: tar.FormatPAX, PAXRecords: map[string]string{"ACME.x": "y"}},
		"globals": {Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"comment": "c"}},
	} {
		if agrees(t, headersOf(t, h)) {
			t.Errorf("%s took the short way", name)
		}
	}
}

// TestChangedHeaders changes bytes of headers, corrects the checksums, and compares with
// archive/tar.
func TestChangedHeaders(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine: make test runs it without the race detector")
	}
	random := rand.New(rand.NewPCG(1, 2))
	usual := 0
	for _, h := range members {
		whole := headersOf(t, h)
		for range 4_000 {
			b := bytes.Clone(whole)
			for range 1 + random.IntN(4) {
				b[random.IntN(len(b))] = "\x00 07/x=\n\x80\xff"[random.IntN(10)]
			}
			for at := 0; at < len(b); at += blockSize {
				if block := b[at:]; string(block[257:262]) == "ustar" {
					sum := checksum(block[:blockSize])
					copy(block[148:], []byte{'0' + byte(sum>>15&7), '0' + byte(sum>>12&7), '0' + byte(sum>>9&7), '0' + byte(sum>>6&7), '0' + byte(sum>>3&7), '0' + byte(sum&7), 0, ' '})
				}
			}
			if agrees(t, b) {
				usual++
			}
		}
	}
	if usual < 2_000 {
		t.Errorf("only %d took the short way", usual)
	}
}

// TestGoCorpus compares every header of Go's test archives.
func TestGoCorpus(t *testing.T) {
	paths, err := filepath.Glob("../../../testdata/corpora/go-tar/*.tar")
	if err != nil || len(paths) == 0 {
		t.Fatal("no archives", err)
	}
	usual := 0
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for at := 0; at+blockSize <= len(data); at += blockSize {
			if agrees(t, data[at:]) {
				usual++
			}
		}
	}
	if usual == 0 {
		t.Error("no usual headers")
	}
}

func FuzzHeader(f *testing.F) {
	for _, h := range members {
		f.Add(headersOf(f, h))
	}
	f.Fuzz(func(t *testing.T, b []byte) { agrees(t, b) })
}
