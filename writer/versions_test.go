package writer_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/internal/sys/build"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/writer"
)

// TestPartsOfOtherVersions: the build's version is in every manifest, and parts that two versions
// packed are refused.
func TestPartsOfOtherVersions(t *testing.T) {
	defer func(was string) { build.Stamp = was }(build.Stamp)
	st := mem.New()
	for part, version := range []string{"1.0.0", "1.0.0", "1.0.1+g0123"} {
		build.Stamp = version
		mustPart(t, st, partsSource(), part, 3, small("d"))
	}
	_, err := writer.Commit(t.Context(), st, writer.CommitOptions{Parts: 3})
	if !errors.Is(err, writer.ErrSource) || !strings.Contains(err.Error(), "part 2 does not go with part 0") || !strings.Contains(err.Error(), "tool version is shardtool 1.0.1+g0123") {
		t.Fatal(err)
	}
	build.Stamp = "1.0.0"
	if _, err := writer.PackPart(t.Context(), st, partsSource(), 2, 3, small("d")); !errors.Is(err, writer.ErrSource) {
		t.Fatalf("the part of another version: %v", err)
	}
	st = partsOf(t, partsSource, small("d"), 3, 0, 1, 2)
	res := mustCommit(t, st, writer.CommitOptions{Parts: 3})
	tables := objects(t, st)[res.Tables]
	opened, err := metadata.OpenTables(func(p []byte, off int64) error { copy(p, tables[off:]); return nil }, int64(len(tables)))
	if err != nil || !strings.HasPrefix(opened.Meta["tool"], "shardtool 1.0.0") {
		t.Fatalf("written by %q, %v", opened.Meta["tool"], err)
	}
}
