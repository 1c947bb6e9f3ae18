package main

import (
	"archive/zip"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/shardtool/shardtool/internal/testset/programs"
)

// TestSourcesKilled kills packs of kinds of files at random moments: nothing is visible, and
// --resume adopts the finished shards and writes the bytes of an uninterrupted pack.
func TestSourcesKilled(t *testing.T) {
	t.Parallel()
	const rows = 50
	for name, c := range map[string]struct {
		prepare func(src string) error
		killedPack
	}{
		"lines": {func(src string) error { // JSON Lines and CSV, plain and compressed
			for _, name := range []string{"a.jsonl", "b.jsonl", "c.jsonl"} {
				if err := randomLines(filepath.Join(src, name), rows, 100_000); err != nil {
					return err
				}
			}
			return shell(src, `gzip -1 b.jsonl; zstd -q --rm c.jsonl; (echo "id,text"; sed -E 's/.*:(.*),"text":(".*")./\1,\2/' a.jsonl) > d.csv; head -n 3 a.jsonl | sed 's/.$//' > e.jsonl`)
		}, killedPack{flags: []string{"--on-error", "skip"}, other: []string{"--columns", "text"}, shards: 7, samples: 4 * rows, skipped: 3}},
		"mds": {func(src string) error {
			for i, name := range []string{"a.mds", "b.mds", "c.mds"} {
				if err := randomMDS(filepath.Join(src, name), rows, 100_000, byte(i)); err != nil {
					return err
				}
			}
			return shell(src, "zstd -q --rm c.mds")
		}, killedPack{other: []string{"--columns", "b"}, shards: 5, samples: 3 * rows}},
		"zip": {func(src string) error {
			return errors.Join(randomFiles(src+"/d", 3*rows, 100_000), intoZip(src+"/a.zip", src+"/d"))
		}, killedPack{other: []string{"--exclude", "*7.bin"}, shards: 5, samples: 3 * rows}},
		"npz": {func(src string) error {
			dir := src + "/d"
			return errors.Join(
				os.Mkdir(dir, 0o755), randomTokens(dir+"/x.npy", 4_000_000, 1, 200, 20_000), randomTokens(dir+"/y.npy", 4_000_000, 2, 200, 20_000), intoZip(src+"/a.npz", dir))
		}, killedPack{other: []string{"--columns", "x"}, shards: 5, samples: 200}},
		"files of rows": {func(src string) error {
			if err := randomFiles(filepath.Join(src, "f"), 3*rows, 100_000); err != nil {
				return err
			}
			return shell(src, `seq -f '{"file":"f/%06.0f.bin"}' 0 150 > a.jsonl`)
		}, killedPack{
			flags: []string{"--file-column", "data=file", "--on-error", "skip"}, other: []string{"--file-column", "image=file"},
			shards: 5, samples: 3 * rows, skipped: 1,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			programs.Need(t, "gzip", "zstd")
			dir := t.TempDir()
			c.src, c.want = filepath.Join(dir, "src"), filepath.Join(dir, "want")
			if err := os.Mkdir(c.src, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := c.prepare(c.src); err != nil {
				t.Fatal(err)
			}
			c.signals = []syscall.Signal{syscall.SIGKILL, syscall.SIGKILL, syscall.SIGKILL, syscall.SIGTERM}
			c.run(t)
		})
	}
}

func shell(dir, script string) error {
	c := exec.Command("sh", "-ec", script)
	c.Dir = dir
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// randomMDS writes a shard of MosaicML Streaming of rows that do not compress.
func randomMDS(name string, rows, size int, seed byte) error {
	columns := `{"column_encodings":["int","bytes"],"column_names":["a","b"],"column_sizes":[8,null],"compression":null,"format":"mds","hashes":[],"size_limit":67108864}`
	at := 4 + 4*(rows+1) + len(columns)
	out := binary.LittleEndian.AppendUint32(nil, uint32(rows))
	for i := range rows + 1 {
		out = binary.LittleEndian.AppendUint32(out, uint32(at+i*(4+8+size)))
	}
	out = append(out, columns...)
	rng, value := rand.NewChaCha8([32]byte{seed}), make([]byte, size)
	for i := range rows {
		_, _ = rng.Read(value)
		out = binary.LittleEndian.AppendUint32(out, uint32(size))
		out = append(binary.LittleEndian.AppendUint64(out, uint64(i)), value...)
	}
	return os.WriteFile(name, out, 0o644)
}

// intoZip moves the files in a folder into an archive.
func intoZip(name, dir string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	w := zip.NewWriter(f)
	return errors.Join(w.AddFS(os.DirFS(dir)), w.Close(), f.Close(), os.RemoveAll(dir))
}
