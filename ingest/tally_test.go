package ingest_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	pq "github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/file"
	"github.com/apache/arrow/go/v17/parquet/schema"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/ingest"
	"github.com/shardtool/shardtool/internal/input/tally"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/local"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reshard"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
)

// random is a source drawn at random, and what must become of it.
type random struct {
	*rand.Rand
	dir   string
	opt   ingest.Options
	pack  writer.Options
	names int64 // that are listed
	rows  int64
	left  map[tally.Rule]int64 // all but duplicates
	bad   int64
	twice bool // keys may repeat within a shard
}

// row is a row of a table: nil is null.
type row struct {
	key, text *string
	n         *int64
	list      []int64
}

var rowNames = []string{"plain", "with space", "ünï", "a,b", "quo'te", "x.y.z", "%41", "k=v w", strings.Repeat("n", 150)}

func (r *random) put(name string, content []byte) {
	path := filepath.Join(r.dir, filepath.FromSlash(name))
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o777), os.WriteFile(path, content, 0o666)); err != nil {
		panic(err)
	}
	r.names++
}

func (r *random) leave(rule tally.Rule) { r.left[rule]++ }

// table draws tables of a kind, with a folder that conditions may exclude, and files beside them.
func (r *random) table(kind string) {
	r.opt.Rows = ingest.Rows{Key: "key", Columns: []string{"text"}, Nulls: source.NullsSkip}
	least := int64(-1)
	if r.IntN(3) > 0 {
		least = int64(r.IntN(12))
		r.opt.Rows.Where = []string{fmt.Sprintf("n >= %d", least)}
	}
	stacked := kind != "csv" && r.IntN(3) == 0
	if stacked {
		r.opt.Rows.Columns, r.pack.Layout = []string{"list"}, writer.LayoutAuto
	}
	folders := r.IntN(3) == 0
	if folders {
		r.opt.Rows.Where = append(r.opt.Rows.Where, "year != 2020")
	}
	for i := range 1 + r.IntN(3) {
		name, pruned := fmt.Sprintf("%d%s.%s", i, rowNames[r.IntN(len(rowNames))], kind), false
		if folders {
			year := []string{"2021", "2020"}[min(i, r.IntN(2))]
			name, pruned = "year="+year+"/"+name, year == "2020"
		}
		var rows []row
		for k := range r.IntN(60) {
			one := row{n: new(int64)}
			if *one.n = int64(r.IntN(20)); r.IntN(8) == 0 {
				one.n = nil
			}
			if key := fmt.Sprintf("%d-%d", i, k); r.IntN(10) > 0 {
				if r.twice && r.IntN(4) == 0 {
					key = fmt.Sprintf("%d-%d", i, max(0, k-1-r.IntN(6)))
				}
				one.key = &key
			}
			if text := fmt.Sprint("text ", k); r.IntN(6) > 0 {
				one.text = &text
				one.list = []int64{int64(k), 1, 2}[:min(3, 2+r.IntN(20))]
			}
			rows = append(rows, one)
		}
		if kind == "parquet" && r.IntN(2) == 0 { // so that conditions exclude whole row groups
			slices.SortFunc(rows, func(a, b row) int { return int(value(a.n) - value(b.n)) })
		}
		r.put(name, encode(kind, rows, r.IntN(10)+1))
		if pruned {
			r.leave(tally.Where)
			continue
		}
		for _, one := range rows {
			r.rows++
			switch {
			case least >= 0 && (one.n == nil || *one.n < least):
				r.leave(tally.Where)
			case one.key == nil:
				r.bad++
			case one.text == nil:
				r.leave(tally.Null)
			}
		}
	}
	if r.IntN(2) == 0 {
		r.put(".hidden."+kind, nil)
		r.leave(tally.Hidden)
	}
	if r.IntN(2) == 0 {
		r.put("README.md", nil)
		r.leave(tally.Side)
	}
}

func value(n *int64) int64 {
	if n == nil {
		return -1
	}
	return *n
}

func encode(kind string, rows []row, group int) []byte {
	var out bytes.Buffer
	switch kind {
	case "csv":
		out.WriteString("key,n,text\n")
		cell := func(s *string) string {
			if s == nil {
				return ""
			}
			return *s
		}
		for _, r := range rows {
			n := ""
			if r.n != nil {
				n = strconv.FormatInt(*r.n, 10)
			}
			fmt.Fprintf(&out, "%s,%s,%s\n", cell(r.key), n, cell(r.text))
		}
	case "jsonl":
		for _, r := range rows {
			line, _ := json.Marshal(map[string]any{"key": r.key, "n": r.n, "text": r.text, "list": r.list})
			out.Write(append(line, '\n'))
		}
	default:
		leaf := func(name string, physical pq.Type, logical schema.LogicalType) schema.Node {
			return schema.Must(schema.NewPrimitiveNodeLogical(name, pq.Repetitions.Optional, logical, physical, -1, -1))
		}
		inner := schema.MustGroup(schema.NewGroupNode("list", pq.Repetitions.Repeated, schema.FieldList{
			schema.NewInt64Node("element", pq.Repetitions.Required, -1)}, -1))
		root := schema.MustGroup(schema.NewGroupNode("schema", pq.Repetitions.Required, schema.FieldList{
			leaf("key", pq.Types.ByteArray, schema.StringLogicalType{}), leaf("n", pq.Types.Int64, schema.NoLogicalType{}),
			leaf("text", pq.Types.ByteArray, schema.StringLogicalType{}),
			schema.MustGroup(schema.NewGroupNodeLogical("list", pq.Repetitions.Optional, schema.FieldList{inner}, schema.NewListLogicalType(), -1)),
		}, -1))
		w := file.NewParquetWriter(&out, root)
		for part := range slices.Chunk(rows, group) {
			g := w.AppendRowGroup()
			text := func(of func(row) *string) {
				var values []pq.ByteArray
				var defs []int16
				for _, r := range part {
					if s := of(r); s != nil {
						values, defs = append(values, pq.ByteArray(*s)), append(defs, 1)
					} else {
						defs = append(defs, 0)
					}
				}
				c, _ := g.NextColumn()
				_, err := c.(*file.ByteArrayColumnChunkWriter).WriteBatch(values, defs, nil)
				if err = errors.Join(err, c.Close()); err != nil {
					panic(err)
				}
			}
			numbers := func(of func(row) ([]int64, []int16, []int16)) {
				var values []int64
				var defs, reps []int16
				for _, r := range part {
					v, d, p := of(r)
					values, defs, reps = append(values, v...), append(defs, d...), append(reps, p...)
				}
				c, _ := g.NextColumn()
				_, err := c.(*file.Int64ColumnChunkWriter).WriteBatch(values, defs, reps)
				if err = errors.Join(err, c.Close()); err != nil {
					panic(err)
				}
			}
			text(func(r row) *string { return r.key })
			numbers(func(r row) ([]int64, []int16, []int16) {
				if r.n == nil {
					return nil, []int16{0}, nil
				}
				return []int64{*r.n}, []int16{1}, nil
			})
			text(func(r row) *string { return r.text })
			numbers(func(r row) ([]int64, []int16, []int16) {
				if r.list == nil {
					return nil, []int16{0}, []int16{0}
				}
				return r.list, slices.Repeat([]int16{2}, len(r.list)), []int16{0, 1, 1}[:len(r.list)]
			})
			if err := g.Close(); err != nil {
				panic(err)
			}
		}
		if err := w.Close(); err != nil {
			panic(err)
		}
	}
	return out.Bytes()
}

// dataset draws a data set of which samples were removed, and conditions on the others.
func (r *random) dataset(t *testing.T) {
	store, err := local.New(r.dir, local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	w, err := writer.New(t.Context(), store, writer.Options{BlockSize: 4 << 10, SamplesPerShard: int64(5 + r.IntN(20))})
	if err != nil {
		t.Fatal(err)
	}
	least, exclude := int64(r.IntN(12)), ""
	if r.IntN(3) > 0 {
		r.opt.Rows.Where = []string{fmt.Sprintf("n >= %d", least)}
	} else {
		least = -1
	}
	if r.IntN(2) == 0 {
		exclude = strconv.Itoa(r.IntN(10))
		r.opt.Exclude = []string{"*" + exclude}
	}
	var gone []string
	n := int64(0)
	for i := range 20 + r.IntN(200) {
		if r.IntN(5) == 0 { // runs of samples that no condition selects
			n = int64(r.IntN(20))
		}
		s := writer.Sample{Key: fmt.Sprint("k", i), Fields: []writer.Field{{Name: "txt", Data: make([]byte, r.IntN(2000))}}}
		a := format.AttrValue{}
		a.Name, a.Kind, a.Integer = "n", format.AttrInteger, n
		s.Attrs = append(s.Attrs, a)
		if err := w.Write(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		r.rows++
		switch {
		case r.IntN(10) == 0:
			gone = append(gone, s.Key)
			r.leave(tally.Removed)
		case exclude != "" && strings.HasSuffix(s.Key, exclude):
			r.leave(tally.Filtered)
		case n < least:
			r.leave(tally.Where)
		}
	}
	if _, err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(gone) > 0 {
		if _, err := reshard.RemoveKeys(t.Context(), store, gone, reshard.RemoveOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// folder draws a folder of files, or an archive of them.
func (r *random) folder(archive bool) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for i := range 5 + r.IntN(40) {
		name := fmt.Sprintf("%d%s/%d.txt", i%3, strings.NewReplacer(".", "", "%", "").Replace(rowNames[r.IntN(len(rowNames))]), i)
		rule := tally.Rule("")
		switch r.IntN(8) {
		case 0:
			name, rule = fmt.Sprintf("._%d.txt", i), tally.Fork
		case 1:
			name, rule = fmt.Sprintf("%d.log", i), tally.Filtered
		case 2:
			if !archive { // where it is a file as any other
				name, rule = fmt.Sprintf(".%d", i), tally.Hidden
			}
		}
		if rule != "" {
			r.leave(rule)
		}
		if !archive {
			r.put(name, []byte(name))
			continue
		}
		r.names++
		_ = w.WriteHeader(&tar.Header{Name: name, Size: int64(len(name)), Mode: 0o644, Typeflag: tar.TypeReg})
		_, _ = w.Write([]byte(name))
	}
	r.opt.Exclude = []string{"*.log"}
	if archive {
		_ = w.Close()
		r.put("a.tar", out.Bytes())
	}
}

// all returns what became of a source.
func all(in *ingest.Input, part int, samples, skipped int64, left writer.RowsLeft) (listed int64, rules map[tally.Rule]int64) {
	n := in.Tally(part, samples, skipped, left)
	rules = n.LeftOut()
	rules["refused"] += skipped - left.Null - left.Duplicate
	rules["packed"] += samples
	return n.Listed, rules
}

// TestTallySum: of random sources every name and every row was packed, left out by a rule, or
// refused; so it is after a run that was stopped and continued, and in parts. SHARDTOOL_TEST_TALLY
// says how many.
func TestTallySum(t *testing.T) {
	t.Parallel()
	seeds := 36
	if text := os.Getenv("SHARDTOOL_TEST_TALLY"); text != "" {
		var err error
		if seeds, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	sums := map[tally.Rule]int64{}
	for seed := range uint64(seeds) {
		kind := []string{"csv", "jsonl", "parquet", "data set", "folder", "archive"}[seed%6]
		r := &random{Rand: rand.New(rand.NewPCG(seed, 11)), dir: t.TempDir(), left: map[tally.Rule]int64{}, twice: seed%4 > 1}
		r.pack = writer.Options{BlockSize: 4 << 10, SamplesPerShard: int64(3 + r.IntN(12)), KeepDuplicates: true}
		r.pack.Faults.Skip = true
		from := []string{r.dir}
		switch kind {
		case "data set":
			r.names = 0
			r.dataset(t)
		case "folder", "archive":
			r.folder(kind == "archive")
			if kind == "archive" {
				from[0] = filepath.Join(r.dir, "a.tar")
			}
		default:
			r.table(kind)
		}
		r.check(t, fmt.Sprintf("%s %d", kind, seed), from, kind != "folder" && kind != "archive", sums)
	}
	for _, rule := range []tally.Rule{"packed", "refused", tally.Where, tally.Null, tally.Duplicate, tally.Removed, tally.Filtered, tally.Hidden, tally.Side, tally.Fork} {
		if sums[rule] == 0 {
			t.Errorf("no source has anything %s", rule)
		}
	}
	t.Logf("%d sources: %v", seeds, sums)
}

func (r *random) open(t *testing.T, from []string) *ingest.Input {
	t.Helper()
	in, err := ingest.Open(t.Context(), from, r.opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close() })
	return in
}

func (r *random) check(t *testing.T, what string, from []string, rows bool, sums map[tally.Rule]int64) {
	in, store := r.open(t, from), mem.New()
	names := func(in *ingest.Input, part int) func() map[string]int64 {
		return func() map[string]int64 {
			out := map[string]int64{}
			for rule, n := range in.PartNames(part).LeftOut() {
				out[string(rule)] = n
			}
			return out
		}
	}
	opt := r.pack
	opt.LeftOut = names(in, 0)
	res, err := writer.Pack(t.Context(), store, in.Source, opt)
	if errors.Is(err, writer.ErrEmpty) {
		return
	}
	if err != nil {
		t.Fatal(what, err)
	}
	listed, rules := all(in, 0, res.Written, res.Skipped, res.LeftOut)
	packed := rules["packed"]
	if strings.HasPrefix(what, "archive") {
		packed++ // the file itself
	}
	if rows { // and the files of the rows
		packed += r.names - r.left[tally.Hidden] - r.left[tally.Side] - r.fileRules(in)
	}
	sum := packed + rules["refused"]
	for rule, n := range rules {
		if sums[rule] += n; rule != "packed" && rule != "refused" {
			sum += n
		}
		if want := r.left[rule]; rule != "packed" && rule != "refused" && rule != tally.Duplicate && n != want {
			t.Errorf("%s: %d by the rule %s, want %d", what, n, rule, want)
		}
	}
	for rule, n := range r.left {
		if rules[rule] != n {
			t.Errorf("%s: %d by the rule %s, want %d", what, rules[rule], rule, n)
		}
	}
	if listed != r.names+r.rows || sum != listed || rules["refused"] != r.bad {
		t.Errorf("%s: listed %d, want %d names and %d rows; the sum is %d: %v, refused %d, want %d", what, listed, r.names, r.rows, sum, rules, rules["refused"], r.bad)
	}

	// A run that stops after some shards, and one that continues it.
	stopped := mem.New()
	ctx, cancel := context.WithCancel(t.Context())
	first, after := r.open(t, from), 1+r.IntN(max(1, int(res.Shards)))
	opt.LeftOut = names(first, 0)
	opt.Stored = func(int64) {
		if after--; after == 0 {
			cancel()
		}
	}
	_, _ = writer.Pack(ctx, stopped, first.Source, opt)
	cancel()
	for range 2 { // and one that finds it finished
		again := r.open(t, from)
		opt.Resume, opt.Stored, opt.LeftOut = true, nil, names(again, 0)
		done, err := writer.Pack(t.Context(), stopped, again.Source, opt)
		if err != nil {
			t.Fatal(what, err)
		}
		if n, now := all(again, 0, done.Written+done.Adopted, done.Skipped, done.LeftOut); rows && (n != listed || !maps.Equal(now, rules)) {
			t.Errorf("%s: continued: listed %d, %v; want %d, %v", what, n, now, listed, rules)
		}
	}
	if rows && objects(t, stopped) != objects(t, store) {
		t.Errorf("%s: other bytes after a stop:\n%s\nwant\n%s", what, objects(t, stopped), objects(t, store))
	}

	// Parts. Duplicates depend on where shards end.
	if r.twice && rows && r.left[tally.Removed] == 0 {
		return
	}
	inParts, total := mem.New(), map[tally.Rule]int64{}
	for part := range 3 {
		in := r.open(t, from)
		opt := r.pack
		opt.LeftOut = names(in, part)
		res, err := writer.PackPart(t.Context(), inParts, in.Source.(writer.Splitter), part, 3, opt)
		if err != nil {
			t.Fatal(what, err)
		}
		n, of := all(in, part, res.Written, res.Skipped, res.LeftOut)
		listed -= n
		for rule, n := range of {
			total[rule] += n
		}
	}
	if maps.DeleteFunc(total, zero); listed != 0 || !maps.Equal(total, maps.Collect(nonZero(rules))) {
		t.Errorf("%s: parts list %d fewer, %v; want %v", what, listed, total, rules)
	}
	if _, err := writer.Commit(t.Context(), inParts, writer.CommitOptions{Name: "data", Parts: 3, KeepDuplicates: true}); err != nil {
		t.Fatal(what, err)
	}
	if got, want := leftOut(t, inParts), leftOut(t, store); got != want {
		t.Errorf("%s: the commit has %s, want %s", what, got, want)
	}
}

// fileRules is how many files no row was taken of.
func (r *random) fileRules(in *ingest.Input) int64 { return in.Names().Left(tally.Where) }

func zero(_ tally.Rule, n int64) bool { return n == 0 }

func nonZero(m map[tally.Rule]int64) func(func(tally.Rule, int64) bool) {
	m = maps.Clone(m)
	maps.DeleteFunc(m, zero)
	return maps.All(m)
}

func leftOut(t *testing.T, store objstore.Store) string {
	t.Helper()
	d, err := reader.Open(t.Context(), store, reader.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	return d.Info().Meta["left_out"]
}

// objects lists the objects of a store with their contents.
func objects(t *testing.T, store objstore.Store) string {
	t.Helper()
	var out strings.Builder
	for info, err := range store.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&out, "%s %d %s\n", info.Name, info.Size, info.ETag)
	}
	return out.String()
}

// TestTallyAhead: sources that read rows ahead of what they give count what was left out before the
// place where a run continues, whichever that is.
func TestTallyAhead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var rows strings.Builder
	want := writer.RowsLeft{}
	for i := range 60 {
		n := i * 7 % 5
		fmt.Fprintf(&rows, "{\"n\": %d, \"ids\": [%s], \"path\": \"%d.txt\"}\n", n, strings.TrimSuffix(strings.Repeat("3,", 1+i%9), ","), i%3)
		if n < 2 {
			want.Where++
		}
	}
	rows.WriteString("{\"n\": 0, \"ids\": [1], \"path\": \"0.txt\"}\n")
	want.Where++
	for i, content := range []string{"a", "b", "c"} {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i, ".txt")), []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	from := filepath.Join(dir, "rows.jsonl")
	if err := os.WriteFile(from, []byte(rows.String()), 0o666); err != nil {
		t.Fatal(err)
	}
	where := []string{"n >= 2"}
	for what, o := range map[string]ingest.Options{
		"files":     {Rows: ingest.Rows{Where: where, Files: []ingest.FileColumn{{Field: "file", Column: "path"}}}},
		"documents": {Rows: ingest.Rows{Where: where}, Tokens: ingest.Tokens{Length: 7, Join: true, Separator: []int64{0}, Field: "ids"}},
	} {
		r := &random{opt: o}
		pack := func(ctx context.Context, store objstore.Store, opt writer.Options) (*writer.Result, error) {
			opt.BlockSize, opt.SamplesPerShard = 4<<10, 4
			return writer.Pack(ctx, store, r.open(t, []string{from}).Source, opt)
		}
		whole := mem.New()
		res, err := pack(t.Context(), whole, writer.Options{})
		if err != nil || res.LeftOut != want || res.Shards < 3 {
			t.Fatalf("%s: %+v, %v; want %+v", what, res, err, want)
		}
		for stop := range res.Shards {
			store, left := mem.New(), stop+1
			ctx, cancel := context.WithCancel(t.Context())
			_, _ = pack(ctx, store, writer.Options{Stored: func(int64) {
				if left--; left == 0 {
					cancel()
				}
			}})
			cancel()
			again, err := pack(t.Context(), store, writer.Options{Resume: true})
			if err != nil || again.LeftOut != want || objects(t, store) != objects(t, whole) {
				t.Errorf("%s after %d shards: %+v, %v; want %+v", what, stop+1, again, err, want)
			}
		}
	}
}
