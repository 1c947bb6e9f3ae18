package writer_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/shardtool/shardtool/internal/testset/programs"
	"github.com/shardtool/shardtool/objstore/local"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
)

func TestPackDemo(t *testing.T) {
	programs.Need(t, "zstd", "tar", "diff")
	ctx := context.Background()
	for _, plain := range []bool{false, true} {
		dir := t.TempDir()
		st, err := local.New(dir, local.Options{})
		if err != nil {
			t.Fatal(err)
		}
		src, err := source.NewFiles(ctx, []string{"../testdata/demo"}, source.FilesOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer src.Close()
		res, err := writer.Pack(ctx, st, src, writer.Options{Name: "train", ShardSize: 512 << 10, BlockSize: 128 << 10, Plain: plain})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%+v", res)
		out := t.TempDir()
		shards, _ := filepath.Glob(filepath.Join(dir, "*.tar*"))
		for _, s := range shards {
			if filepath.Ext(s) == ".shidx" {
				continue
			}
			cmd := "zstd -dc " + s + " | tar -x -C " + out
			if plain {
				cmd = "tar -x -f " + s + " -C " + out
			}
			if b, err := exec.Command("sh", "-c", cmd).CombinedOutput(); err != nil || len(b) > 0 {
				t.Fatalf("%v %s", err, b)
			}
		}
		if b, err := exec.Command("diff", "-r", "../testdata/demo", out).CombinedOutput(); err != nil {
			t.Fatalf("%v %s", err, b)
		}
		_ = os.RemoveAll(out)
	}
}
