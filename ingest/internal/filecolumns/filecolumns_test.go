package filecolumns

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/shardtool/shardtool/internal/input/zips"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/local"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
	"github.com/shardtool/shardtool/writer/source/lines"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rows opens rows of JSON Lines in a store, with the files that the member f names.
func rows(t testing.TB, st objstore.Store, root *Root, text string, columns ...Column) *Source {
	t.Helper()
	put(t, st, "rows.jsonl", text)
	src, err := lines.New(t.Context(), []source.Input{{Store: st, Name: "rows.jsonl"}}, lines.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if columns == nil {
		columns = []Column{{Field: "image", Name: "f", From: []string{"f", "f.txt"}}}
	}
	s := New(src, columns, func(string) (*Root, error) { return root, nil })
	t.Cleanup(func() { s.Close() })
	return s
}

func put(t testing.TB, st objstore.Store, name, text string) {
	t.Helper()
	if _, err := objstore.Put(t.Context(), st, name, []byte(text), objstore.Condition{}); err != nil {
		t.Fatal(err)
	}
}

// next reads a sample as key and fields.
func next(t testing.TB, s *Source) (string, error) {
	t.Helper()
	p, err := s.Next(t.Context())
	if err != nil {
		return "", err
	}
	line := p.Key
	for _, f := range p.Fields {
		data := f.Data
		if f.Payload != nil {
			data = make([]byte, f.Size)
			if err := f.Payload.ReadInto(t.Context(), data); err != nil {
				return "", err
			}
			r, err := f.Payload.Open(t.Context())
			if err != nil {
				return "", err
			}
			streamed, err := io.ReadAll(r)
			if r.Close(); err != nil || !bytes.Equal(streamed, data) {
				t.Errorf("%s: streamed %d bytes of %d: %v", f.Name, len(streamed), len(data), err)
			}
			data = fmt.Append(nil, len(data))
		}
		line += fmt.Sprintf(" %s=%s", f.Name, data)
	}
	return line, nil
}

// TestFiles: files follow their rows in order, from any cursor, whatever their size and extension.
func TestFiles(t *testing.T) {
	st := mem.New()
	var text strings.Builder
	var want []string
	for i := range 300 {
		name, ext := fmt.Sprintf("d/%d.JPG", i), "jpg"
		content := fmt.Sprint("file ", i)
		shown := content
		switch i % 100 {
		case 7:
			name, ext, content = fmt.Sprintf("d/%d", i), "png", "\x89PNG\r\n\x1a\n"
			shown = content
		case 8:
			name, ext = fmt.Sprintf("d/%d.a-b", i), "bin"
		case 9:
			content = strings.Repeat("x", small+i)
			shown = fmt.Sprint(len(content))
		}
		put(t, st, "at/"+name, content)
		fmt.Fprintf(&text, "{\"f\":\"./%s\"}\n", name)
		want = append(want, fmt.Sprintf("rows/%09d f.txt=./%s image.%s=%s", i, name, ext, shown))
	}
	s := rows(t, st, &Root{Store: st, Dir: "at/", Shown: "at"}, text.String())
	var got, cursors []string
	for {
		cursors = append(cursors, s.Cursor())
		line, err := next(t, s)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, line)
	}
	if !slices.Equal(got, want) {
		t.Fatalf("%d samples: %.300q", len(got), got)
	}
	for _, at := range []int{250, 9, 300, 0, 108} {
		if err := s.Seek(t.Context(), cursors[at]); err != nil {
			t.Fatal(err)
		}
		line, err := next(t, s)
		if at == 300 && errors.Is(err, io.EOF) {
			continue
		}
		if err != nil || line != want[at] {
			t.Errorf("%d: %q, %v", at, line, err)
		}
	}
	var parts []string
	for part := range 3 {
		s := rows(t, st, &Root{Store: st, Dir: "at/", Shown: "at"}, text.String())
		if err := s.Split(part, 3); err != nil {
			t.Fatal(err)
		}
		for line, err := next(t, s); !errors.Is(err, io.EOF); line, err = next(t, s) {
			if err != nil {
				t.Fatal(err)
			}
			parts = append(parts, line)
		}
	}
	if !slices.Equal(parts, want) {
		t.Errorf("%d samples in parts", len(parts))
	}
	if kinds := s.Learned()["kinds"]; !strings.Contains(kinds, `"f.txt":"txt"`) || !strings.Contains(kinds, `"image.npy":"npy"`) {
		t.Error(kinds)
	}
}

// TestPaths: a path that leads nowhere, or out of the folder, is an error of its row.
func TestPaths(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "in", "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"out.jpg", "in/a.jpg"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../out.jpg", filepath.Join(dir, "in", "link.jpg")); err != nil {
		t.Fatal(err)
	}
	st, err := local.New(filepath.Join(dir, "in"), local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	full := filepath.ToSlash(filepath.Join(dir, "in")) + "/"
	for _, c := range []struct{ row, want string }{
		{`{"f":"a.jpg"}`, ""},
		{`{"f":"sub/../a.jpg"}`, ""},
		{`{"f":"` + full + `a.jpg"}`, ""},
		{`{"f":"b.jpg"}`, `column f: there is no file "b.jpg" in IN`},
		{`{"f":"a.jpg/b.jpg"}`, `there is no file "a.jpg/b.jpg"`},
		{`{"f":"sub"}`, `there is no file "sub"`},
		{`{"f":"sub/"}`, `the path "sub/" is a folder`},
		{`{"f":"../out.jpg"}`, `the path "../out.jpg" leads out of IN`},
		{`{"f":"sub/../../out.jpg"}`, `leads out of IN`},
		{`{"f":"` + full + `../out.jpg"}`, `leads out of IN`},
		{`{"f":"/etc/passwd"}`, `the path "/etc/passwd" leads out of IN`},
		{`{"f":"https://host/a.jpg"}`, `leads out of IN`},
		{`{"f":"link.jpg"}`, `leads out of the store`},
		{`{"f":"a\u0000.jpg"}`, `the file "a\x00.jpg" in IN`},
		{`{"f":""}`, `the path is empty`},
		{`{"f":null,"g":1}`, `column f has no path`},
		{`{"g":1}`, `by the condition 'f is not null'`},
		{`{"f":["a.jpg"]}`, `column f has no path, or it is not text`},
	} {
		s := rows(t, mem.New(), &Root{Store: st, Shown: "IN", Prefixes: []string{full}}, c.row+"\n{\"f\":\"a.jpg\"}\n")
		_, err := next(t, s)
		if c.want == "" {
			if err != nil {
				t.Errorf("%s: %v", c.row, err)
			}
			continue
		}
		se, ok := errors.AsType[*writer.SampleError](err)
		if !ok || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "rows.jsonl: line 1") || se.Row != 1 {
			t.Errorf("%s: %v, want %s", c.row, err, c.want)
		}
		if line, err := next(t, s); err != nil || !strings.HasSuffix(line, "image.jpg=x") {
			t.Errorf("after %s: %q, %v", c.row, line, err)
		}
	}
}

// TestColumns: several columns, without those that only name files, and a row that is an error.
func TestColumns(t *testing.T) {
	st := mem.New()
	put(t, st, "a.jpg", "A")
	put(t, st, "m.png", "M")
	columns := []Column{{Field: "jpg", Name: "f", From: []string{"f.txt"}, Drop: true}, {Field: "mask.x", Name: "m", From: []string{"m.txt"}}}
	s := rows(t, st, &Root{Store: st, Shown: "st"}, "{\"f\":\"a.jpg\",\"m\":\"m.png\",\"t\":\"x\"}\n{\n{\"f\":\"a.jpg\",\"m\":\"m.png\"}\n", columns...)
	if line, err := next(t, s); err != nil || line != "rows/000000000 m.txt=m.png t.txt=x jpg=A mask.x=M" {
		t.Errorf("%q, %v", line, err)
	}
	if _, err := next(t, s); !strings.Contains(fmt.Sprint(err), "line 2") {
		t.Error(err)
	}
	if line, err := next(t, s); err != nil || line != "rows/000000002 m.txt=m.png jpg=A mask.x=M" {
		t.Errorf("%q, %v", line, err)
	}
}

// unsteady is a remote store that fails once, and counts requests in flight.
type unsteady struct {
	objstore.Store
	failed         sync.Once
	inFlight, most atomic.Int64
	wait           chan struct{}
	fails          string
	enough         int64
}

func (u *unsteady) Traits() objstore.Traits { return objstore.Traits{Requests: 8} }

var errPasses = errors.New("the network is down")

func (u *unsteady) Open(ctx context.Context, name string) (obj objstore.Object, err error) {
	if name == "rows.jsonl" {
		return u.Store.Open(ctx, name)
	}
	n := u.inFlight.Add(1)
	defer u.inFlight.Add(-1)
	for most := u.most.Load(); n > most && !u.most.CompareAndSwap(most, n); most = u.most.Load() {
	}
	if n == u.enough {
		close(u.wait)
	}
	if u.wait != nil {
		select {
		case <-u.wait:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if name == u.fails {
		u.failed.Do(func() { err = errPasses })
	}
	if err != nil {
		return nil, err
	}
	return u.Store.Open(ctx, name)
}

// TestStore: files of a store are waited for together, and its errors are not errors of a row.
func TestStore(t *testing.T) {
	st := mem.New()
	put(t, st, "a.jpg", "A")
	put(t, st, "b.jpg", "B")
	many := &unsteady{Store: st, wait: make(chan struct{}), enough: ahead}
	s := rows(t, st, &Root{Store: many, Shown: "st"}, strings.Repeat("{\"f\":\"a.jpg\"}\n", 2*ahead))
	if _, err := next(t, s); err != nil || many.most.Load() != ahead {
		t.Errorf("%d in flight: %v", many.most.Load(), err)
	}
	s = rows(t, st, &Root{Store: &unsteady{Store: st, fails: "b.jpg"}, Shown: "st"}, "{\"f\":\"a.jpg\"}\n{\"f\":\"b.jpg\"}\n{\"f\":\"c.jpg\"}\n")
	var got []string
	for range 4 {
		line, err := next(t, s)
		if se, ok := errors.AsType[*writer.SampleError](err); ok {
			line = fmt.Sprint("row ", se.Row)
		} else if err != nil {
			line = err.Error()
		}
		got = append(got, line)
	}
	want := []string{"rows/000000000 f.txt=a.jpg image.jpg=A", "rows.jsonl: line 2: column f: the network is down", "rows/000000001 f.txt=b.jpg image.jpg=B", "row 3"}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	stuck := rows(t, st, &Root{Store: &unsteady{Store: st, wait: make(chan struct{})}, Shown: "st"}, "{\"f\":\"a.jpg\"}\n")
	if _, err := stuck.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestArchive: a file that is damaged in an archive is an error of its row, and a failure of the
// archive is not.
func TestArchive(t *testing.T) {
	st := mem.New()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, f := range []struct{ name, text string }{{"in/a.jpg", "A"}, {"in/b.jpg", "damaged"}, {"in/c.jpg", strings.Repeat("C", 200_000)}, {"in/d.jpg", strings.Repeat("D", 200_000)}} {
		if to, err := w.CreateHeader(&zip.FileHeader{Name: f.name}); err != nil {
			t.Fatal(err)
		} else if _, err := io.WriteString(to, f.text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	put(t, st, "a.zip", strings.Replace(b.String(), "damaged", "Damaged", 1))
	store := &unsteady{Store: st}
	archive, err := zips.New(t.Context(), store, "a.zip", "a.zip")
	if err != nil {
		t.Fatal(err)
	}
	store.fails = "a.zip"
	s := rows(t, st, &Root{Store: archive, Dir: "in/", Shown: "a.zip/in", Archive: true}, "{\"f\":\"a.jpg\"}\n{\"f\":\"b.jpg\"}\n{\"f\":\"c.jpg\"}\n{\"f\":\"e.jpg\"}\n")
	var got []string
	for range 5 {
		line, err := next(t, s)
		if se, ok := errors.AsType[*writer.SampleError](err); ok {
			line = fmt.Sprint("row ", se.Row)
		} else if errors.Is(err, errPasses) {
			line = "passes"
		} else if err != nil {
			line = err.Error()
		}
		got = append(got, line[:min(len(line), 9)])
	}
	at := slices.Index(got, "passes") // whichever row reads the archive first
	if at < 0 {
		t.Fatalf("%q", got)
	}
	if rest := slices.Delete(slices.Clone(got), at, at+1); !slices.Equal(rest, []string{"rows/0000", "row 2", "rows/0000", "row 4"}) {
		t.Errorf("%q", got)
	}
	if err := st.Delete(t.Context(), "a.zip"); err != nil {
		t.Fatal(err)
	}
	s = rows(t, st, &Root{Store: archive, Dir: "in/", Shown: "a.zip/in", Archive: true}, "{\"f\":\"d.jpg\"}\n")
	if _, err := next(t, s); !errors.Is(err, objstore.ErrChanged) || errors.As(err, new(*writer.SampleError)) {
		t.Error(err)
	}
}

// TestChanged: a large file that changes after it was listed is an error.
func TestChanged(t *testing.T) {
	st := mem.New()
	put(t, st, "a.jpg", strings.Repeat("x", small+1))
	s := rows(t, st, &Root{Store: st, Shown: "st"}, "{\"f\":\"a.jpg\"}\n")
	p, err := s.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	put(t, st, "a.jpg", strings.Repeat("y", small+1))
	f := p.Fields[1]
	if err := f.Payload.ReadInto(t.Context(), make([]byte, f.Size)); !errors.Is(err, objstore.ErrChanged) {
		t.Error(err)
	}
	if _, err := f.Payload.Open(t.Context()); !errors.Is(err, objstore.ErrChanged) {
		t.Error(err)
	}
}
