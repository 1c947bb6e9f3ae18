package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore/local"
	"github.com/shardtool/shardtool/objstore/storetest/hubserver"
	"github.com/shardtool/shardtool/reader"
)

var update = flag.Bool("update", false, "write anew what a test compares with in testdata, such as packs.txt")

// packsFlags are the flags that each folder of testdata/inputs is packed with.
var packsFlags = []string{
	"", "--format tar --samples-per-shard 1", "--layout stacked", "--layout auto --samples-per-shard 1", "--nulls empty", "--on-error skip --nulls skip", "--pack-shuffle 7",
	"--class-field cls", "--key id", "--columns text,a,x", "--rename text=caption --rename a=b", "--attr n=id", "--attr n=label --where n>=1", "--attr n=len(tokens.npy)",
	"--where id>0", "--delimiter ;", "--file-column image=file_name", "--include *.json*", "--exclude *.json*", "--raw-dtype uint16", "--pack-tokens 2",
	"--pack-tokens 3 --separator 0 --raw-dtype uint16", "--pack-tokens 2 --separator 0 --tokens-field text", "--share 0%..50%",
	"--as files", "--as files --include *.json* --include *.csv", "--as parquet", "--as arrow", "--as jsonl", "--as json", "--as csv", "--as tar", "--as tokens", "--as arrays",
}

// packsMade are the sources that the test makes, and the flags that they are packed with.
var packsMade = map[string][]string{
	"made/rows.jsonl": {
		"", "--key id", "--nulls empty", "--nulls skip", "--columns text,list --nulls empty", "--key id --attr n=n --where n>=0", "--attr n=n --where n>3 --key id --nulls empty",
		"--rename text=caption --nulls empty", "--layout auto --columns list", "--pack-tokens 8 --separator 1,2 --tokens-field list", "--pack-tokens 8 --separator none --tokens-field list --pack-remainder pad --pad-id 9",
		"--pack-tokens 8 --separator 1 --tokens-field list --pack-remainder drop --token-dtype int64",
	},
	"made/lang":                          {"", "--key id", "--where lang='de'", "--columns lang,text", "--include lang=fr/*", "--attr lang=lang"},
	"made/lang/**/*.csv":                 {"", "--key id"},
	"made/{a,b}.csv":                     {"", "--columns id", "--delimiter ,"},
	"made/photos":                        {"", "--pack-shuffle 7", "--class-field cls", "--include cat/*", "--exclude **/*.txt", "--include .* --include **", "--attr n=len(vec.npy)", "--layout auto --include **/*.vec.npy"},
	"made/arrays":                        {"", "--columns x", "--pack-tokens 5", "--pack-tokens 5 --pack-remainder drop", "--pack-tokens 7 --separator 3", "--as files", "--as arrays", "--layout samples --as arrays", "--token-dtype int64 --pack-tokens 5"},
	"made/files.jsonl":                   {"--file-column image=file", "--file-column image=file --columns label", "--file-column image=file --file-root made/photos/cat", "--file-column image=file --on-error skip", ""},
	"set":                                {"", "--share 0%..50%", "--share 0%..50% --share-salt x --share-by folder", "--where n>3", "--columns text", "--rename txt=caption", "--include *1*", "--exclude *1*", "--layer more", "--layer more --columns more.txt", "--layer none", "--key id"},
	"set#some":                           {"", "--columns text"},
	"set set#some":                       {""},
	"pictures":                           {"", "--class-field cls", "--attr n=len(vec.npy)"},
	"made/photos/cat made/photos/dog":    {"", "--pack-shuffle 3"},
	"made/photos made/rows.jsonl":        {""},
	"made/none":                          {"", "--as tar"},
	"made/none/*.tar":                    {""},
	"in/img2dataset/{00000..00001}.tar":  {"", "--on-error skip"},
	"in/hubclone in/arrow":               {""},
	"in/hubclone in/pq_noext":            {"", "--columns text"},
	"corpora/cpython-tar":                {"--on-error skip", "--on-error skip --include *testtar*"},
	"corpora/json-test-suite":            {"", "--include **/y_*"},
	"corpora/csv-spectrum":               {"--include csvs/*", "--as files"},
	"hf://datasets/org/inputs/":          nil, // each folder of testdata/inputs
	"hf://datasets/org/inputs/*/*.tar":   {""},
	"hf://datasets/org/inputs/**/*.none": {""},
}

// packsStdin are what standard input contains.
var packsStdin = map[string][]string{
	"made/rows.jsonl":              {"jsonl", "csv", "tar"},
	"made/a.csv":                   {"csv"},
	"in/arrow/a.arrow":             {"parquet"},
	"in/img2dataset/00000.tar":     {"tar", "parquet"},
	"in/spark/*.parquet":           {"parquet", "tar"},
	"in/tar_xz/*":                  {"tar"},
	"in/zip_csv/*":                 {"zip", "jsonl"},
	"corpora/go-tar/pax.tar":       {"tar"},
	"corpora/arrow/v0.7.1.parquet": {"parquet"},
}

// TestPacks compares what packs write and what they refuse with testdata/packs.txt: what the way
// from a name to samples must keep. Each pack that works is also resumed from a part of its shards,
// as after a kill, and must write the same bytes. A line has the exit code, the number of samples,
// and the beginnings of the fingerprint of the source and of hashes of the cursors and of the
// shards.
func TestPacks(t *testing.T) {
	if testing.Short() {
		t.Skip("one command after another: make test runs it without the race detector")
	}
	golden, err := filepath.Abs("testdata/packs.txt")
	if err != nil {
		t.Fatal(err)
	}
	makePacks(t)
	defer debug.SetGCPercent(debug.SetGCPercent(200)) // each command makes all commands and their flags
	r := packsRecord{t: t}
	folders, err := os.ReadDir("in")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range folders {
		r.input("in/"+e.Name(), packsFlags)
	}
	for _, name := range filesUnder(t, "corpora", ".tar", ".parquet", ".csv", ".tsv") {
		r.input(filepath.ToSlash(name), []string{"", "--on-error skip", "--nulls empty --key id"})
	}
	for _, src := range slices.Sorted(maps.Keys(packsMade)) {
		if flags := packsMade[src]; flags != nil {
			r.input(src, flags)
			continue
		}
		for _, e := range folders {
			r.input(src+e.Name(), []string{"", "--as files"})
		}
	}
	for _, pattern := range slices.Sorted(maps.Keys(packsStdin)) {
		name, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, is := range packsStdin[pattern] {
			if r.stdin = ""; len(name) > 0 {
				r.stdin = name[0]
			}
			r.input("-", []string{"--stdin-format " + is})
		}
	}
	compareGolden(t, golden, r.text.String())
}

// inMemory is a new folder in memory, where the system has one with room, or else on the disk: of
// thousands of packs, syncing to a disk would take most of the time.
func inMemory(t *testing.T) string {
	var fs unix.Statfs_t
	if unix.Statfs("/dev/shm", &fs) != nil || fs.Bavail*uint64(fs.Bsize) < 1<<30 {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp("/dev/shm", "shardtool-test-*")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// makePacks makes the sources in the folder that it changes to. Their times are set, because
// fingerprints have them.
func makePacks(t *testing.T) {
	t.Helper()
	inputs, err := filepath.Abs("../../testdata/inputs")
	if err != nil {
		t.Fatal(err)
	}
	shipped, err := filepath.Abs(corpora)
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(inMemory(t))
	t.Setenv("GOMEMLIMIT", "1GiB") // pack would set one for the whole process
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	before := warnings
	warnings = slog.New(slog.DiscardHandler)
	t.Cleanup(func() { warnings = before })
	for from, to := range map[string]string{inputs: "in", shipped: "corpora"} {
		if err := os.CopyFS(to, os.DirFS(from)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"in/README.md", "in/make.py", "corpora/expected.tsv", "corpora/refused.tsv"} {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	files := map[string]string{}
	var rows, lines strings.Builder
	for i := range 30 {
		list := strings.TrimSuffix(strings.Repeat(fmt.Sprintf("%d,", i), 1+i%4), ",")
		fmt.Fprintf(&rows, `{"id":"row/%02d","n":%d,"text":"text é %d","list":[%s],"nested":{"a":[%d,null]},"f":%d.50,"yes":%t}`+"\n", i, i%7, i, list, i, i, i%2 == 0)
		if i%10 == 3 {
			rows.WriteString("{\"id\":null,\"text\":null}\n")
		}
		class, name := []string{"cat", "dog", "cow"}[i%3], fmt.Sprintf("%02d", i/3)
		files["photos/"+class+"/"+name+".jpg"] = strings.Repeat("jpeg"+name, 10)
		files["photos/"+class+"/"+name+".txt"] = "a " + class
		files["photos/"+class+"/"+name+".vec.npy"] = string(npyOf("<f4", 3, make([]byte, 12)))
	}
	for _, class := range []string{"cat", "dog"} {
		fmt.Fprintf(&lines, "{\"label\":\"%s\",\"file\":\"photos/%[1]s/01.jpg\"}\n{\"label\":\"%[1]s\",\"file\":\"01.jpg\"}\n", class)
	}
	ids := make([]byte, 0, 64)
	for i := range 32 {
		ids = binary.LittleEndian.AppendUint16(ids, uint16(i%9))
	}
	files["rows.jsonl"], files["files.jsonl"] = rows.String(), lines.String()
	files["a.csv"], files["b.csv"] = "id,text\n1,\"one, two\"\n2,\n3,three\n", "id,text\n4,\"four\nlines\"\n"
	files["lang/lang=de/a.csv"], files["lang/lang=fr/b.csv"] = "id,text\nx,eins\n", "id,text\ny,un\nz,deux\n"
	files["arrays/x.npy"], files["arrays/y.npy"] = string(npyOf("<u2", 32, ids)), string(npyOf("<u2", 20, ids[:40]))
	files["photos/.hidden.jpg"] = "hidden"
	for name, text := range files {
		name = filepath.Join("made", name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		putFile(t, name, text)
	}
	at := time.Date(2024, 5, 6, 7, 8, 9, 0, time.UTC)
	set := map[string]hubserver.File{}
	err = filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(name)
		if name, in := strings.CutPrefix(filepath.ToSlash(name), "in/"); in {
			set[name] = hubserver.File{Data: data}
		}
		return errors.Join(err, os.Chtimes(name, at, at))
	})
	if err != nil {
		t.Fatal(err)
	}
	hubserver.New(t, map[string]*hubserver.Set{"org/inputs": hubserver.NewSet(set)}).Limit = 1e9
	inProcess(t, "pack", "made/rows.jsonl", "set", "--key", "id", "--attr", "n=n", "--where", "n >= 0", "--samples-per-shard", "10", "--quiet")
	inProcess(t, "pack", "made/photos", "pictures", "--class-field", "cls", "--quiet")
	inProcess(t, "select", "set", "--where", "n > 2", "--name", "some")
	putFile(t, "more.csv", "key,more\nrow/01,a\nrow/02,b\n")
	inProcess(t, "layer", "add", "set", "more", "more.csv", "--key", "key", "--missing", "allow", "--quiet")
}

// npyOf is an array of one dimension.
func npyOf(dtype string, n int, data []byte) []byte {
	head := fmt.Sprintf("\x93NUMPY\x01\x00\x76\x00{'descr': '%s', 'fortran_order': False, 'shape': (%d,), }", dtype, n)
	return append([]byte(head+strings.Repeat(" ", 127-len(head))+"\n"), data...)
}

// packsRecord writes the record.
type packsRecord struct {
	t     *testing.T
	text  strings.Builder
	stdin string // a file
}

// input packs one source with each of the flags. The refusal of most flags is said to be of all
// others.
func (r *packsRecord) input(src string, flags []string) {
	fmt.Fprintln(&r.text, strings.TrimSpace(src+" "+r.stdin))
	refused := map[string][]string{}
	unread := false // the kind, which most flags do not change
	for i, f := range flags {
		if unread && i%8 != 0 && !strings.Contains(f, "--as ") {
			continue
		}
		if text, ok := r.pack(src, f); ok {
			fmt.Fprintf(&r.text, "  %s: (%s)\n", text, f)
		} else {
			refused[text] = append(refused[text], "("+f+")")
			unread = unread || f == "" && strings.Contains(text, "which pack does not read")
		}
	}
	most := 8
	for _, of := range refused {
		most = max(most, len(of))
	}
	for _, text := range slices.Sorted(maps.Keys(refused)) {
		of := strings.Join(refused[text], " | ")
		if len(refused[text]) == most {
			of = fmt.Sprintf("%d others", most)
		}
		fmt.Fprintf(&r.text, "  %s\n    for %s\n", text, of)
	}
}

var packsTemporary = regexp.MustCompile(`/\S*/(shardtool-)?[a-z-]*[0-9]{6,}`)

// command packs into a folder, and returns the exit code and the error.
func (r *packsRecord) command(src, flags, to string, more ...string) (code int, message string) {
	in := io.Reader(strings.NewReader(""))
	if r.stdin != "" {
		data, err := os.ReadFile(r.stdin)
		if err != nil {
			r.t.Fatal(err)
		}
		in = bytes.NewReader(data)
	}
	var out, stderr bytes.Buffer
	args := slices.Concat([]string{"pack"}, strings.Fields(src), []string{to, "--quiet", "--json"}, strings.Fields(flags), more)
	code = run(args, in, &out, &stderr)
	dir, _ := os.Getwd()
	message, _, _ = strings.Cut(strings.TrimPrefix(strings.ReplaceAll(stderr.String(), dir, "DIR"), "shardtool: "), "\n")
	if message = packsTemporary.ReplaceAllString(message, "TEMP"); len(message) > 120 {
		message = message[:120] + "…"
	}
	return code, message
}

// pack packs a source, resumes the pack, and returns the line for it. ok reports whether it works.
func (r *packsRecord) pack(src, flags string) (line string, ok bool) {
	r.t.Helper()
	code, message := r.command(src, flags, "out")
	defer os.RemoveAll("out")
	if code != 0 && code != exitSkipped {
		return fmt.Sprint(code, " ", message), false
	}
	line = fmt.Sprint(code, " ", r.written(src, flags, "out"))
	if src == stdinName {
		return line, true
	}
	again := flags
	if !strings.Contains(flags, "--samples-per-shard") {
		again += " --samples-per-shard 1"
	}
	if code, message := r.command(src, again, "whole"); code != 0 && code != exitSkipped {
		return line + ", in shards of one sample " + message, true
	}
	defer os.RemoveAll("whole")
	if err := os.CopyFS("killed", os.DirFS("whole")); err != nil {
		r.t.Fatal(err)
	}
	defer os.RemoveAll("killed")
	shards := matches(r.t, "killed/data-*.tar*")
	for _, name := range append(matches(r.t, "killed/manifest*", "killed/keys-*", "killed/skipped*"), shards[(len(shards)+1)/2:]...) {
		if err := os.Remove(name); err != nil {
			r.t.Fatal(err)
		}
	}
	if code, message := r.command(src, again, "killed", "--resume"); code != 0 && code != exitSkipped {
		return line + ", resumed " + message, true
	}
	whole, resumed := r.written(src, flags, "whole"), r.written(src, flags, "killed")
	if whole != resumed {
		r.t.Errorf("pack %s %s: resumed after a kill it writes %s, else %s", src, flags, resumed, whole)
	}
	return line + " / " + whole, true
}

func matches(t *testing.T, patterns ...string) (names []string) {
	t.Helper()
	for _, p := range patterns {
		some, err := filepath.Glob(p)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, some...)
	}
	return names
}

// written describes a data set.
func (r *packsRecord) written(src, flags, dir string) string {
	r.t.Helper()
	store, err := local.New(dir, local.Options{})
	if err != nil {
		r.t.Fatal(err)
	}
	ds, err := reader.Open(context.Background(), store, reader.Options{})
	if err != nil {
		r.t.Fatal(err)
	}
	defer ds.Close()
	cursors, shards := sha256.New(), sha256.New()
	for i := range ds.NumShards() {
		ix, err := ds.Index(context.Background(), i)
		if err != nil {
			r.t.Fatal(err)
		}
		fmt.Fprintf(cursors, "%s\n%s\n", ix.Meta["cursor_start"], ix.Meta["cursor_end"])
	}
	for _, name := range matches(r.t, dir+"/data-*.tar*") {
		data, err := os.ReadFile(name)
		if err != nil {
			r.t.Fatal(err)
		}
		shards.Write(data)
	}
	kind, sum, _ := strings.Cut(ds.Info().Meta["source"], ":")
	if src == "in/zips" || strings.Contains(flags, "--layer ") || strings.Contains(flags, "--stdin-format parquet") {
		// the fingerprint has the inode of the archive, a name drawn for the layer, or the time of a
		// temporary file
		return fmt.Sprintf("%d %s %.15s", ds.NumSamples(), kind, format.DigestString(ds.Digest()))
	}
	return fmt.Sprintf("%d %s:%.8s %.8s %.8s", ds.NumSamples(), kind, sum, fmt.Sprintf("%x", cursors.Sum(nil)), fmt.Sprintf("%x", shards.Sum(nil)))
}
