package writer_test

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/npy"
	"github.com/shardtool/shardtool/internal/testset/readback"
	"github.com/shardtool/shardtool/objstore/local"
	"github.com/shardtool/shardtool/writer"
)

// update writes the golden data set of version 1.1 where there is none. What exists is never
// written again.
var update = flag.Bool("update", false, "write the golden data set if it does not exist")

const golden11 = "../testdata/spec/golden-v1.1"

// goldenRuns are the packs that make it: rows with numbered keys, rows with stored keys in plain
// tars, and rows with an ordinary shard among them.
func goldenRuns() []struct {
	opt     writer.Options
	samples []writer.Sample
} {
	small := writer.Options{BlockSize: 4 << 10, ShardSize: 4 << 10, Workers: 1, Layout: writer.LayoutStacked}
	numbered, stored, auto := small, small, small
	numbered.Name, stored.Name, auto.Name = "numbered", "stored", "auto"
	stored.Plain, stored.Mode = true, writer.ModeAppend
	auto.Layout, auto.Mode = writer.LayoutAuto, writer.ModeAppend
	mixed := goldenRows(70, func(i int) string { return strings.Replace(numberedKey(i), "s/", "auto-", 1) })
	mixed[20].Fields = mixed[20].Fields[:1]
	for i := range mixed {
		mixed[i].Attrs = []format.AttrValue{{Attribute: format.Attribute{Name: "n", Kind: format.AttrInteger}, Integer: int64(i)}}
	}
	return []struct {
		opt     writer.Options
		samples []writer.Sample
	}{{numbered, goldenRows(70, numberedKey)}, {stored, goldenRows(30, storedKey)}, {auto, mixed}}
}

// goldenRows are rows of 137 bytes.
func goldenRows(n int, key func(i int) string) (samples []writer.Sample) {
	for i := range n {
		x := npy.AppendHeader(nil, "<i4", 2, 17)
		for k := range 34 {
			x = binary.LittleEndian.AppendUint32(x, uint32(i*1000003+k*k))
		}
		y := append(npy.AppendHeader[int](nil, "|b1"), byte(i%2))
		samples = append(samples, writer.Sample{Key: key(i), Fields: []writer.Field{{Name: "x.npy", Data: x}, {Name: "y.npy", Data: y}}})
	}
	return samples
}

// goldenLine is a sample in expect.json: fields by their SHA-256.
type goldenLine struct {
	Key    string            `json:"key"`
	Fields map[string]string `json:"fields"`
	Attrs  map[string]any    `json:"attributes,omitempty"`
}

// TestGolden11 reads the data set of version 1.1 that was written once.
func TestGolden11(t *testing.T) {
	if _, err := os.Stat(filepath.Join(golden11, format.ManifestName)); *update && os.IsNotExist(err) {
		writeGolden11(t)
	}
	st, err := local.New(golden11, local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	set, err := readback.Load(t.Context(), st)
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]int{}
	for i := range set.Manifest.Shards {
		s := &set.Manifest.Shards[i]
		switch {
		case s.Layout != nil && s.Numbered != nil:
			kinds["numbered rows"]++
		case s.Layout != nil:
			kinds["rows"]++
		case s.Numbered != nil:
			kinds["numbered"]++
		}
	}
	if len(kinds) != 3 {
		t.Errorf("shards: %v", kinds)
	}
	text, err := os.ReadFile(filepath.Join(golden11, "expect.json"))
	if err != nil {
		t.Fatal(err)
	}
	if got := goldenText(t, set); got != string(text) {
		t.Error("the samples are not those of expect.json")
	}
}

func goldenText(t *testing.T, set *readback.Set) string {
	t.Helper()
	var lines []goldenLine
	for i := range set.Samples {
		s := &set.Samples[i]
		line := goldenLine{Key: hex.EncodeToString([]byte(s.Key)), Fields: map[string]string{}}
		for _, f := range s.Fields {
			sum := sha256.Sum256(f.Data)
			line.Fields[f.Name] = hex.EncodeToString(sum[:])
		}
		for _, a := range s.Attrs {
			line.Attrs = map[string]any{a.Name: fmt.Sprint(a.Integer)}
		}
		lines = append(lines, line)
	}
	text, err := json.MarshalIndent(lines, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text) + "\n"
}

// writeGolden11 packs it, and takes expect.json from what was packed.
func writeGolden11(t *testing.T) {
	st, err := local.New(golden11, local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, run := range goldenRuns() {
		packRows(t, st, run.opt, run.samples)
	}
	set, err := readback.Load(t.Context(), st)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(golden11, "expect.json"), []byte(goldenText(t, set)), 0o644); err != nil {
		t.Fatal(err)
	}
}
