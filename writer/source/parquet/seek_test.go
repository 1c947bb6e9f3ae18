package parquet_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	pq "github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/schema"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/local"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
	"github.com/shardtool/shardtool/writer/source/parquet"
)

func open(t testing.TB, in []source.Input, opt parquet.Options) *parquet.Rows {
	t.Helper()
	src, err := parquet.New(t.Context(), in, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { src.Close() })
	return src
}

func three(t testing.TB) map[string][]byte {
	return map[string][]byte{"a.parquet": people(t), "b.parquet": write(t, smallTable()), "c.parquet": people(t)}
}

// TestSeek: every cursor, forwards and backwards, is followed by the same rows as the first time.
func TestSeek(t *testing.T) {
	st := store(t, map[string][]byte{"a.parquet": people(t), "c.parquet": people(t)})
	for _, opt := range []parquet.Options{{}, {Where: []string{"id>=5", "id!=12"}, Columns: []string{"name", "id", "list"}}} {
		src := open(t, inputs(t, st), opt)
		var cursors []string
		var want []row
		for {
			cursors = append(cursors, src.Cursor())
			s, err := src.Next(t.Context())
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, copyOf(s))
		}
		for _, from := range []*parquet.Rows{src, open(t, inputs(t, st), opt)} {
			for i := range cursors {
				i = (i * 7) % len(cursors)
				if err := from.Seek(t.Context(), cursors[i]); err != nil {
					t.Fatal(err)
				}
				if got := from.Cursor(); got != cursors[i] {
					t.Fatalf("the cursor is %s, want %s", got, cursors[i])
				}
				got, skipped, err := rows(from)
				if err != nil || len(skipped) > 0 || !slices.EqualFunc(got, want[i:], same) {
					t.Fatalf("from %s: %d rows, want %d (%v, %v)", cursors[i], len(got), len(want)-i, err, skipped)
				}
			}
		}
		for _, bad := range []string{"", "x", "0/0/11", "0/9/0", "9/0/0", "-1/0/0", "2/0/1", "0/3/1"} {
			if err := src.Seek(t.Context(), bad); err == nil {
				t.Errorf("%q is a cursor", bad)
			}
		}
	}
}

func same(a, b row) bool { return a.key == b.key && maps.Equal(a.fields, b.fields) }

// TestSplit: the parts of any number are runs of row groups, together all rows in order.
func TestSplit(t *testing.T) {
	st := store(t, three(t))
	src := open(t, inputs(t, st), parquet.Options{})
	want, _, err := rows(src)
	if err != nil {
		t.Fatal(err)
	}
	print := src.Fingerprint()
	if n := parquet.Units(src); n != 8 {
		t.Fatalf("%d units", n)
	}
	for parts := 1; parts <= 12; parts++ {
		var got []row
		total := int64(0)
		for part := range parts {
			if err := src.Split(part, parts); err != nil {
				t.Fatal(err)
			}
			n, _ := src.Total()
			some, _, err := rows(src)
			if err != nil || int64(len(some)) != n {
				t.Fatalf("part %d of %d: %d rows of %d, %v", part, parts, len(some), n, err)
			}
			got, total = append(got, some...), total+n
		}
		if !slices.EqualFunc(got, want, same) || total != int64(len(want)) || src.Fingerprint() != print {
			t.Errorf("%d parts: %d rows, want %d", parts, len(got), len(want))
		}
	}
	if src.Split(3, 3) == nil || src.Split(-1, 3) == nil || src.Split(0, 0) == nil {
		t.Error("a part that is none")
	}
}

// TestFingerprint changes with what a pack depends on, and with nothing else.
func TestFingerprint(t *testing.T) {
	dir := t.TempDir()
	st, err := local.New(dir, local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	put := func(name string, content []byte) {
		if _, err := objstore.Put(t.Context(), st, name, content, objstore.Condition{}); err != nil {
			t.Fatal(err)
		}
	}
	put("a.parquet", people(t))
	print := func(opt parquet.Options, names ...string) string {
		return open(t, inputs(t, st, names...), opt).Fingerprint()
	}
	before := print(parquet.Options{}, "a.parquet")
	in := inputs(t, st, "a.parquet")
	in[0].Path = "/somewhere/else/a.parquet"
	if open(t, in, parquet.Options{}).Fingerprint() != before {
		t.Error("the folder matters")
	}
	seen := map[string]string{before: "before"}
	check := func(what, got string) {
		t.Helper()
		if old, ok := seen[got]; ok {
			t.Errorf("%s has the fingerprint of %s", what, old)
		}
		seen[got] = what
	}
	check("key", print(parquet.Options{Key: "id"}, "a.parquet"))
	check("columns", print(parquet.Options{Columns: []string{"id"}}, "a.parquet"))
	check("rename", print(parquet.Options{Rename: map[string]string{"id": "no"}}, "a.parquet"))
	check("attrs", print(parquet.Options{Attrs: map[string]string{"a": "id"}}, "a.parquet"))
	check("where", print(parquet.Options{Where: []string{"id=1"}}, "a.parquet"))
	time.Sleep(20 * time.Millisecond) // the store gives later files later times
	put("a.parquet", people(t))
	check("time", print(parquet.Options{}, "a.parquet"))
	put("b.parquet", people(t))
	check("files", print(parquet.Options{}, "a.parquet", "b.parquet"))
	check("order", print(parquet.Options{}, "b.parquet", "a.parquet"))
}

// TestChanged: a file that was written anew since packing began is an error.
func TestChanged(t *testing.T) {
	st := store(t, three(t))
	src := open(t, inputs(t, st), parquet.Options{})
	if _, err := src.Next(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := objstore.Put(t.Context(), st, "b.parquet", people(t), objstore.Condition{}); err != nil {
		t.Fatal(err)
	}
	_, _, err := rows(src)
	if !errors.Is(err, objstore.ErrChanged) {
		t.Error(err)
	}
}

// slow is a store that counts requests, as one over a network, and refuses some.
type slow struct {
	objstore.Store
	ranges []int
	fail   int // this request, from 1
	turn   chan struct{}
}

func (s *slow) Traits() objstore.Traits { return objstore.Traits{Requests: 4} }

func (s *slow) Open(ctx context.Context, name string) (objstore.Object, error) {
	obj, err := s.Store.Open(ctx, name)
	return &slowObject{obj, s}, err
}

type slowObject struct {
	objstore.Object
	s *slow
}

var errLine = errors.New("the line is dead")

func (o *slowObject) ReadAt(ctx context.Context, p []byte, off int64) error {
	o.s.turn <- struct{}{}
	o.s.ranges = append(o.s.ranges, len(p))
	n := len(o.s.ranges)
	<-o.s.turn
	if n == o.s.fail {
		return errLine
	}
	return o.Object.ReadAt(ctx, p, off)
}

// wide is a file with a column of large values in two row groups, and one of small ones.
func wide(t testing.TB, cells int) []byte {
	tab := table{fields: schema.FieldList{
		leafNode("id", pq.Repetitions.Required, nil, pq.Types.Int64, 0), leafNode("data", pq.Repetitions.Required, nil, pq.Types.ByteArray, 0),
	}, props: []pq.WriterProperty{pq.WithDictionaryDefault(false), pq.WithBatchSize(1)}}
	for g := range 2 {
		var ids []int64
		var values [][]byte
		for i := range cells {
			ids = append(ids, int64(g*cells+i))
			cell := make([]byte, 1<<20)
			for k := range cell {
				cell[k] = byte(i + k*k>>3)
			}
			values = append(values, cell)
		}
		tab.groups = append(tab.groups, []data{{values: ids}, {values: values}})
	}
	return write(t, tab)
}

// TestRemote reads the same over a network: in ranges of at most 8 MiB, all of the columns that are
// wanted and no others.
func TestRemote(t *testing.T) {
	content := wide(t, 12)
	remote := func() *slow {
		return &slow{Store: store(t, map[string][]byte{"x.parquet": content}), turn: make(chan struct{}, 1)}
	}
	want := read(t, content, parquet.Options{})
	s := remote()
	got, _, err := rows(open(t, inputs(t, s), parquet.Options{}))
	if err != nil || !slices.EqualFunc(got, want, same) {
		t.Fatalf("%d rows, %v", len(got), err)
	}
	total := 0
	for _, n := range s.ranges {
		total += n
		if n > 8<<20 {
			t.Errorf("a range of %d bytes", n)
		}
	}
	if limit := len(content) + 4*64<<10; total > limit || len(s.ranges) > 12 {
		t.Errorf("%d requests for %d bytes of a file of %d", len(s.ranges), total, len(content))
	}
	s = remote()
	if _, _, err := rows(open(t, inputs(t, s), parquet.Options{Columns: []string{"id"}})); err != nil {
		t.Fatal(err)
	}
	if len(s.ranges) > 4 || slices.Max(s.ranges) > 64<<10 {
		t.Errorf("for one small column: ranges %v", s.ranges)
	}
	// A failed request is not damage: no row is left out, and the source can continue.
	for k := 1; k <= 12; k++ {
		s := remote()
		s.fail = k
		src, err := parquet.New(t.Context(), inputs(t, s), parquet.Options{})
		if k == 1 {
			if !errors.Is(err, errLine) {
				t.Fatal(err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		got, skipped, err := rows(src)
		if len(skipped) > 0 || k <= len(s.ranges) && !errors.Is(err, errLine) {
			t.Errorf("request %d fails: %v, skipped %v", k, err, skipped)
		}
		more, skipped, err2 := rows(src)
		if err2 != nil || len(skipped) > 0 || !slices.EqualFunc(append(got, more...), want, same) {
			t.Errorf("request %d fails: %d and %d rows, %v", k, len(got), len(more), err2)
		}
		src.Close()
	}
}

// TestCancelled: the end of a context is an error, and not that of a row.
func TestCancelled(t *testing.T) {
	src := open(t, inputs(t, store(t, three(t))), parquet.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := src.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := parquet.New(ctx, inputs(t, store(t, three(t))), parquet.Options{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := src.Next(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestResume stops packing at many places. With Resume the same command makes the same bytes, and
// reads no row group again that is in shards.
func TestResume(t *testing.T) {
	in := inputs(t, store(t, three(t)))
	opt := writer.Options{Name: "p", BlockSize: 4 << 10, ShardSize: 32 << 10}
	clean := mem.New()
	want, err := writer.Pack(t.Context(), clean, open(t, in, parquet.Options{}), opt)
	if err != nil {
		t.Fatal(err)
	}
	for stop := 50; stop < int(want.Samples); stop += 170 {
		st := mem.New()
		src := &stopping{Rows: open(t, in, parquet.Options{}), left: stop}
		if stop > 200 { // more than a shard
			src.in = st
		}
		if _, err := writer.Pack(t.Context(), st, src, opt); !errors.Is(err, errLine) {
			t.Fatal(err)
		}
		again := opt
		again.Resume = true
		res, err := writer.Pack(t.Context(), st, open(t, in, parquet.Options{}), again)
		if err != nil || res.Digest != want.Digest || res.Adopted+res.Written != int64(want.Samples) || stop > 200 && res.Adopted == 0 {
			t.Errorf("stopped at %d: %+v, %v", stop, res, err)
		}
	}
	st := mem.New()
	if _, err := writer.Pack(t.Context(), st, &stopping{Rows: open(t, in, parquet.Options{}), left: 300}, opt); !errors.Is(err, errLine) {
		t.Fatal(err)
	}
	opt.Resume = true
	if _, err := writer.Pack(t.Context(), st, open(t, in, parquet.Options{Columns: []string{"id", "text"}}), opt); !errors.Is(err, writer.ErrSource) {
		t.Errorf("resumed with other columns: %v", err)
	}
}

// stopping fails after some samples, once there is a shard in a store, if it has one.
type stopping struct {
	*parquet.Rows
	left int
	in   *mem.Store
}

func hasShard(ctx context.Context, st *mem.Store) bool {
	for info := range st.List(ctx, "") {
		if strings.HasSuffix(info.Name, format.ZstdSuffix) {
			return true
		}
	}
	return false
}

func (s *stopping) Next(ctx context.Context) (writer.Sample, error) {
	if s.left--; s.left < 0 {
		for s.in != nil && ctx.Err() == nil && !hasShard(ctx, s.in) {
			time.Sleep(time.Millisecond)
		}
		return writer.Sample{}, fmt.Errorf("stopped: %w", errLine)
	}
	return s.Rows.Next(ctx)
}
