package lines

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/local"
	"github.com/shardtool/shardtool/objstore/storetest"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/writer/source"
)

// mixed are files of each kind, with bad rows in them.
func mixed(t testing.TB) []source.Input {
	rng := rand.New(rand.NewPCG(1, 2))
	object := func(rows int) string {
		var b strings.Builder
		for i := range rows {
			switch rng.IntN(12) {
			case 0:
				b.WriteString("\n")
			case 1:
				b.WriteString("{broken\n")
			case 2:
				fmt.Fprintf(&b, "{\"n\":%d,\"t\":\"%s\"}\r\n", i, strings.Repeat("é", rng.IntN(60)))
			default:
				fmt.Fprintf(&b, "{\"n\":%d,\"t\":\"x\\n\"}\n", i)
			}
		}
		return b.String()
	}
	rows := func(rows int, comma string) string {
		b := new(strings.Builder)
		b.WriteString("\xef\xbb\xbfn" + comma + "t\n")
		for i := range rows {
			switch rng.IntN(12) {
			case 0:
				b.WriteString("\r\n")
			case 1:
				b.WriteString("ragged\n")
			case 2:
				fmt.Fprintf(b, "\"%d%sx\"\n", i, comma)
			case 3:
				fmt.Fprintf(b, "%d%s\"line\n\n\"\"two\"\"\"\r\n", i, comma)
			default:
				fmt.Fprintf(b, "%d%s%s\n", i, comma, strings.Repeat("y", rng.IntN(40)))
			}
		}
		return b.String()
	}
	return given(t, "a/one.jsonl", object(40), "b/one.csv", rows(40, ","), "empty.jsonl", "", "two.jsonl.gz", object(30), "three.tsv", strings.TrimSpace(rows(30, "\t")),
		"four.csv.zst", rows(30, ","), "header.csv", "n,t\n", "five.NDJSON", strings.TrimSpace("\xef\xbb\xbf"+object(40)), "last.jsonl", "")
}

// TestSeek: from each row on, also in another source, come the rows that followed it, whatever the
// size of chunks.
func TestSeek(t *testing.T) {
	t.Parallel()
	in := mixed(t)
	whole := open(t, Options{}, in)
	var want, cursors []string
	for {
		cursors = append(cursors, whole.Cursor())
		rows, err := some(t.Context(), whole, 1)
		if err != nil {
			t.Fatal(err)
		}
		if len(rows) == 0 {
			break
		}
		want = append(want, rows...)
	}
	if len(want) < 180 {
		t.Fatalf("%d rows", len(want))
	}
	again := open(t, Options{chunk: 50, Workers: 3}, in)
	if again.Fingerprint() != whole.Fingerprint() {
		t.Error("the fingerprint depends on workers")
	}
	for _, i := range rand.Perm(len(cursors)) {
		if err := again.Seek(t.Context(), cursors[i]); err != nil {
			t.Fatal(err)
		}
		if again.Cursor() != cursors[i] {
			t.Errorf("%s becomes %s", cursors[i], again.Cursor())
		}
		n := -1
		if i%5 > 0 {
			n = min(3, len(want)-i)
		}
		got, err := some(t.Context(), again, n)
		if err != nil {
			t.Fatal(err)
		}
		if n < 0 {
			same(t, got, want[i:])
		} else {
			same(t, got, want[i:i+n])
		}
	}
	for _, cursor := range []string{"", "x", "1/2/3", "-1/0/1/0", "0/99999999/1/0", "9/1/1/0", "10/0/0/0", "0/-1/0/0"} {
		if err := again.Seek(t.Context(), cursor); err == nil {
			t.Errorf("cursor %q is taken", cursor)
		}
	}
}

// TestSplit: parts are disjoint, in order, and together the whole, with the same keys; each can be
// resumed.
func TestSplit(t *testing.T) {
	t.Parallel()
	in := mixed(t)
	whole := open(t, Options{}, in)
	want := all(t, whole)
	stored := int64(0)
	for _, f := range whole.files {
		stored += f.Info.Size
	}
	for _, parts := range []int{1, 2, 3, 5, 16, 400} {
		var got []string
		sum := int64(0)
		for part := range parts {
			s := open(t, Options{chunk: 1 + part%3*70, Workers: 2}, in)
			if err := s.Split(part, parts); err != nil {
				t.Fatal(err)
			}
			if s.Fingerprint() != whole.Fingerprint() {
				t.Fatal("another fingerprint")
			}
			begin := s.Cursor()
			rows := all(t, s)
			got = append(got, rows...)
			sum += s.part[1] - s.part[0]
			if len(rows) == 0 || parts > 100 {
				s.Close()
				continue
			}
			if err := s.Seek(t.Context(), begin); err != nil {
				t.Fatal(err)
			}
			if _, err := some(t.Context(), s, 1); err != nil {
				t.Fatal(err)
			}
			if err := s.Seek(t.Context(), s.Cursor()); err != nil {
				t.Fatal(err)
			}
			same(t, all(t, s), rows[1:])
			s.Close()
		}
		same(t, got, want)
		if sum != stored {
			t.Errorf("%d parts have %d bytes, want %d", parts, sum, stored)
		}
	}
	for _, bad := range [][2]int{{0, 0}, {-1, 2}, {2, 2}} {
		if err := whole.Split(bad[0], bad[1]); err == nil {
			t.Errorf("part %d of %d is taken", bad[0], bad[1])
		}
	}
}

// TestCompressedDamage: a truncated or damaged compressed file ends the source after the rows
// before the damage.
func TestCompressedDamage(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"x.jsonl.gz", "x.jsonl.zst", "x.csv.gz", "x.csv.zst"} {
		text := strings.Repeat("{\"a\":1}\n", 200)
		if strings.Contains(name, "csv") {
			text = "a\n" + strings.Repeat("1\n", 200)
		}
		content := pack(t, name, text)
		for cut := range content {
			for _, flip := range []bool{false, true} {
				damaged := bytes.Clone(content[:cut])
				if flip {
					damaged = bytes.Clone(content)
					damaged[cut] ^= 0x10
				}
				store := mem.New()
				put(t, store, name, damaged)
				s, err := New(t.Context(), []source.Input{{Store: store, Name: name}}, Options{Workers: 1})
				var rows []string
				if err == nil {
					rows, err = some(t.Context(), s, -1)
					s.Close()
				}
				if !flip && (!errors.Is(err, format.ErrCorrupt) || !strings.Contains(err.Error(), name+": ") || !errors.Is(err, io.ErrUnexpectedEOF)) {
					t.Fatalf("%s cut at %d: %d rows, %v", name, cut, len(rows), err)
				}
				if flip && err == nil && len(rows) != 200 { // some bits of headers have no meaning
					t.Fatalf("%s flipped at %d: %d rows", name, cut, len(rows))
				}
			}
		}
	}
}

// far is a remote store.
type far struct{ objstore.Store }

func (far) Traits() objstore.Traits { return objstore.Traits{Requests: 4} }

// TestStoreFails: an error of the store is not an error of a row, and reading continues at the same
// row when the store recovers.
func TestStoreFails(t *testing.T) {
	t.Parallel()
	for _, remote := range []bool{false, true} {
		well := mem.New()
		put(t, well, "x.jsonl", []byte(strings.Repeat("{\"a\":1}\n", 100)))
		put(t, well, "y.csv.gz", pack(t, "y.csv.gz", "a\n"+strings.Repeat("1\n", 100)))
		storetest.EachFault(t, func(*testing.T) objstore.Store { return well }, storetest.Fault{}, func(t *testing.T, store *storetest.Faulty) {
			faulty := objstore.Store(store)
			if remote {
				faulty = far{store}
			}
			s, err := New(t.Context(), []source.Input{{Store: faulty, Name: "x.jsonl"}, {Store: faulty, Name: "y.csv.gz"}}, Options{chunk: 64, Workers: 1})
			if err != nil {
				if !errors.Is(err, storetest.ErrInjected) {
					t.Error(err)
				}
				return
			}
			defer s.Close()
			rows := 0
			for failed := 0; ; {
				got, err := some(t.Context(), s, -1)
				rows += len(got)
				if err == nil {
					break
				}
				if failed++; failed > 1 || !errors.Is(err, storetest.ErrInjected) || errors.Is(err, format.ErrCorrupt) {
					t.Fatal(err)
				}
			}
			if rows != 200 {
				t.Errorf("%d rows", rows)
			}
		})
	}
}

// TestChangedFile: a file that is written to while it is read ends the pack.
func TestChangedFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	name := filepath.Join(dir, "x.jsonl")
	store, err := local.New(dir, local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, before := range []bool{true, false} {
		if err := os.WriteFile(name, []byte(strings.Repeat("{\"a\":1}\n", 1000)), 0o644); err != nil {
			t.Fatal(err)
		}
		s := open(t, Options{chunk: 8, Workers: 1}, []source.Input{{Store: store, Name: "x.jsonl"}})
		if !before {
			if _, err := some(t.Context(), s, 1); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(name, []byte(strings.Repeat("{\"b\":1}\n", 1001)), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := some(t.Context(), s, -1); !errors.Is(err, objstore.ErrChanged) {
			t.Errorf("before=%v: %v", before, err)
		}
	}
}

// TestStop: Close and the end of a context do not wait for rows that nobody reads.
func TestStop(t *testing.T) {
	t.Parallel()
	in := given(t, "x.jsonl", strings.Repeat("{\"a\":1}\n", 10_000), "y.jsonl.gz", strings.Repeat("{\"a\":1}\n", 10_000))
	s := open(t, Options{chunk: 10}, in)
	if _, err := some(t.Context(), s, 5); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if rows, err := some(t.Context(), s, 5); err != nil || rows[0] != "x/000000005 | a.txt=1" {
		t.Error(rows, err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Close()
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("Close hangs")
	}
	if _, err := s.Next(t.Context()); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
}
