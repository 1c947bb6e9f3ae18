package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pq "github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/file"
	"github.com/apache/arrow/go/v17/parquet/schema"

	"github.com/shardtool/shardtool/objstore/storetest/hubserver"
)

// numberedRows returns a Parquet file of the rows from first on, in row groups of 5,000.
func numberedRows(t *testing.T, first, rows int) []byte {
	t.Helper()
	check := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	root, err := schema.NewGroupNode("schema", pq.Repetitions.Required, schema.FieldList{
		schema.NewInt64Node("id", pq.Repetitions.Required, -1), schema.NewByteArrayNode("data", pq.Repetitions.Required, -1),
	}, -1)
	check(err)
	var out bytes.Buffer
	w := file.NewParquetWriter(&out, root, file.WithWriterProps(pq.NewWriterProperties(pq.WithDictionaryDefault(false))))
	const group = 5000
	for from := first; from < first+rows; from += group {
		var ids []int64
		var cells []pq.ByteArray
		for i := from; i < min(from+group, first+rows); i++ {
			ids, cells = append(ids, int64(i)), append(cells, fmt.Appendf(nil, "row %d", i))
		}
		g := w.AppendRowGroup()
		c, err := g.NextColumn()
		check(err)
		_, err = c.(*file.Int64ColumnChunkWriter).WriteBatch(ids, nil, nil)
		check(err)
		check(c.Close())
		c, err = g.NextColumn()
		check(err)
		_, err = c.(*file.ByteArrayColumnChunkWriter).WriteBatch(cells, nil, nil)
		check(err)
		check(c.Close())
		check(g.Close())
	}
	check(w.Close())
	return out.Bytes()
}

// published returns the files of a packed data set as a data set of the Hub, with the large ones in
// Xet.
func published(t *testing.T, dir string) *hubserver.Set {
	t.Helper()
	files := map[string]hubserver.File{"README.md": {Data: []byte("# a data set")}}
	names, err := filepath.Glob(dir + "/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		f := hubserver.File{Data: data}
		if strings.HasPrefix(filepath.Base(name), "data-") || len(data) > 1<<20 {
			f.Kind = hubserver.Xet
		}
		files["data/"+filepath.Base(name)] = f
	}
	return hubserver.NewSet(files)
}

// rowsVariable is the number of rows in TestHub.
const rowsVariable = "SHARDTOOL_TEST_HUB_ROWS"

// TestHub packs, indexes, verifies and streams data sets on a Hub with the real one's limit, 3,000
// calls in five minutes: not one is refused. The number of calls depends on the files, not on the
// rows.
func TestHub(t *testing.T) {
	rows, parts := 200_000, 20
	if testing.Short() {
		rows, parts = 40_000, 8
	}
	if text := os.Getenv(rowsVariable); text != "" {
		if _, err := fmt.Sscan(text, &rows); err != nil {
			t.Fatal(err)
		}
		rows -= rows % parts
	}
	files := map[string]hubserver.File{"README.md": {Data: []byte("text")}}
	for i := range parts {
		name := fmt.Sprintf("data/train-%05d-of-%05d.parquet", i, parts)
		files[name] = hubserver.File{Data: numberedRows(t, i*rows/parts, rows/parts), Kind: hubserver.Kind(1 + i%2)}
	}
	server := hubserver.New(t, map[string]*hubserver.Set{"org/rows": hubserver.NewSet(files)})
	server.Lifetime = time.Hour
	dir := t.TempDir()
	out := filepath.Join(dir, "out")
	shardtool(t, "pack", "hf://datasets/org/rows/data/*.parquet", out, "--quiet", "--shard-size", fmt.Sprintf("%dMiB", max(1, rows/200_000)))
	packing := server.Counts()
	t.Logf("packed %d rows: %+v", rows, packing)
	if packing.Refused > 0 || packing.API != 2 || packing.Resolve > 2*parts {
		t.Errorf("packing %d files: %+v", parts, packing)
	}
	set := published(t, out)
	server.Add("org/packed", set)
	const address = "hf://datasets/org/packed/data"
	got := shardtool(t, "cat", address, "--shuffle", "--seed", "7", "--json")
	if n := bytes.Count(got, []byte("\n")); n != rows {
		t.Errorf("%d samples, want %d", n, rows)
	}
	if want := shardtool(t, "cat", out, "--shuffle", "--seed", "7", "--json"); !bytes.Equal(got, want) {
		t.Error("the stream differs from the one of the local data set")
	}
	streaming := server.Counts()
	t.Logf("streamed: %+v", streaming)
	if streaming.Refused > 0 || streaming.API != packing.API || streaming.Resolve-packing.Resolve > 4*len(set.Files[hubserver.Commit]) {
		t.Errorf("streaming %d files: %+v", len(set.Files[hubserver.Commit]), streaming)
	}
	shardtool(t, "verify", address, "--quiet")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"pack", out, "hf://datasets/org/packed/new"}, "does not write to the Hub"},
		{[]string{"index", address}, "does not write to the Hub"},
		{[]string{"inspect", "hf://datasets/org/none"}, "set HF_TOKEN"},
		{[]string{"inspect", "hf://datasets/org/packed@v9/data"}, `has no revision "v9"`},
		{[]string{"inspect", "hf://org/packed"}, "only data sets and buckets of the Hub"},
	} {
		text, err := exec.Command("shardtool", c.args...).CombinedOutput()
		if err == nil || !strings.Contains(string(text), c.want) {
			t.Errorf("%q: %v: %s", c.args, err, text)
		}
	}
	testHubPython(t, server, address, rows)
}

// testHubPython streams in Python.
func testHubPython(t *testing.T, server *hubserver.Server, address string, rows int) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skipf("no python3: %v", err)
	}
	binary, err := exec.LookPath("shardtool")
	if err != nil {
		t.Fatal(err)
	}
	source, err := filepath.Abs("../../python/src")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("python3", "-c", `
import sys, shardtool
total = count = 0
with shardtool.Loader(sys.argv[1], 1000, fields={"id.txt": "bytes"}, shuffle=True, seed=7) as loader:
    for batch in loader:
        count += len(batch["id.txt"])
        total += sum(int(bytes(i)) for i in batch["id.txt"])
print(count, total)
`, address)
	cmd.Env = append(os.Environ(), "SHARDTOOL_BINARY="+binary, "PYTHONPATH="+source, "PYTHONDONTWRITEBYTECODE=1")
	text, err := cmd.CombinedOutput()
	if want := fmt.Sprint(rows, " ", rows*(rows-1)/2); err != nil || strings.TrimSpace(string(text)) != want {
		t.Errorf("%v: %s, want %s", err, text, want)
	}
	if c := server.Counts(); c.Refused > 0 {
		t.Errorf("%+v", c)
	}
}
