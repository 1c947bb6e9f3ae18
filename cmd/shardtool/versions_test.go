package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/objstore/storetest/s3server"
	"github.com/shardtool/shardtool/writer"
)

// TestVersions purges in a bucket with versioning: the receipt lists the versions that have the
// bytes, --versions deletes them and nothing current, and those that a lock protects are left.
func TestVersions(t *testing.T) {
	t.Parallel()
	bucket := s3server.New(t)
	bucket.Versioned = true
	address := func(name string) string {
		return "s3://bucket/" + name + "?path_style=true&region=us-east-1&endpoint=" + bucket.URL
	}
	dir := t.TempDir()
	more := t.TempDir()
	for _, file := range []string{"a.txt", "b.txt", "c.txt"} {
		err := os.WriteFile(filepath.Join(dir, file), []byte("text of "+file), 0o600)
		if err == nil {
			err = os.WriteFile(filepath.Join(more, file[:1]+".copy"), []byte("copied text of "+file), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	run := func(code int, args ...string) (stdout, stderr string) {
		t.Helper()
		cmd := exec.Command("shardtool", args...)
		cmd.Env = append(os.Environ(), "AWS_ACCESS_KEY_ID=a", "AWS_SECRET_ACCESS_KEY=b", "AWS_EC2_METADATA_DISABLED=true")
		var out, said bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &said
		_ = cmd.Run()
		if got := cmd.ProcessState.ExitCode(); got != code {
			t.Fatalf("%q: exit %d, want %d: %s%s", args, got, code, &out, &said)
		}
		return out.String(), said.String()
	}
	receipt := func(code int, args ...string) (r writer.PurgeReport, stderr string) {
		t.Helper()
		out, stderr := run(code, append(args, "--json")...)
		if err := json.Unmarshal([]byte(out), &r); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return r, stderr
	}
	// with returns the versions that have a text, and whether they are current.
	with := func(text string) (noncurrent, current []string) {
		bucket.Mu.Lock()
		defer bucket.Mu.Unlock()
		for key, versions := range bucket.Versions {
			for i, v := range versions {
				switch {
				case !bytes.Contains(v.Data, []byte(text)):
				case i == 0:
					current = append(current, key)
				default:
					noncurrent = append(noncurrent, key+" "+v.ID)
				}
			}
		}
		return noncurrent, current
	}
	set := address("set")
	run(0, "pack", dir, set, "--format", "tar", "--samples-per-shard", "1", "--quiet")
	run(0, "layer", "add", set, "extra", more, "--format", "tar", "--quiet")
	bucket.Mu.Lock()
	bucket.Objects["set/notes.txt"] = s3server.Stored{Data: []byte("of the user"), ETag: "x"} // not ours
	bucket.Versions["set/notes.txt"] = []s3server.Version{{ID: "n2", Stored: bucket.Objects["set/notes.txt"]}, {ID: "n1"}}
	bucket.Mu.Unlock()
	run(0, "remove", set, "b")

	r, _ := receipt(0, "purge", set, "--generations")
	gone, there := with("text of b.txt")
	if len(gone) == 0 || len(there) > 0 || !r.Versions || len(r.VersionsLeft) == 0 || len(r.VersionsDeleted) > 0 {
		t.Fatalf("noncurrent %q, current %q, %+v", gone, there, r)
	}
	for _, version := range gone {
		key, id, _ := strings.Cut(version, " ")
		if !slices.ContainsFunc(r.VersionsLeft, func(v writer.KeptVersion) bool { return "set/"+v.Name == key && v.ID == id }) {
			t.Errorf("the receipt lacks %s: %+v", version, r.VersionsLeft)
		}
	}
	if text, _ := run(0, "purge", set, "--versions", "--dry-run"); !strings.Contains(text, "would delete version ") {
		t.Errorf("%s", text)
	}
	if still, _ := with("text of b.txt"); len(still) != len(gone) {
		t.Fatalf("a dry run left %q of %q", still, gone)
	}

	lock, id, _ := strings.Cut(gone[0], " ")
	bucket.Mu.Lock()
	bucket.Locked = func(key, version string) bool { return key == lock && version == id }
	bucket.Mu.Unlock()
	r, stderr := receipt(1, "purge", set, "--versions")
	if still, _ := with("text of b.txt"); len(still) != 1 || still[0] != gone[0] || len(r.VersionsLeft) != 1 || r.VersionsLeft[0].ID != id || r.VersionsLeft[0].Error == "" || !r.Versions {
		t.Errorf("left %q, %+v", still, r)
	}
	if !strings.Contains(stderr, "kept 1 version that were to be deleted") && !strings.Contains(stderr, id) {
		t.Errorf("%s", stderr)
	}
	bucket.Mu.Lock()
	bucket.Locked = nil
	if _, is := bucket.Objects[lock]; is {
		t.Errorf("%s is back, because the mark of its deletion went first", lock)
	}
	bucket.Mu.Unlock()
	r, _ = receipt(0, "purge", set, "--versions")
	if still, _ := with("text of b.txt"); len(still) > 0 || r.Versions || len(r.VersionsDeleted) != 1 {
		t.Errorf("left %q, %+v", still, r)
	}
	bucket.Mu.Lock()
	if left := bucket.Versions["set/notes.txt"]; len(left) != 2 {
		t.Errorf("versions of the user's file: %+v", left)
	}
	for key, versions := range bucket.Versions {
		if len(versions) > 1 && !strings.HasSuffix(key, ".json") && key != "set/notes.txt" {
			t.Errorf("%s has %d versions", key, len(versions))
		}
	}
	bucket.Mu.Unlock()
	run(0, "verify", set, "--deep", "--quiet")
	if text, _ := run(0, "cat", set, "--layer", "extra"); !strings.Contains(text, "text of a.txt") || !strings.Contains(text, "text of c.txt") || strings.Contains(text, "text of b.txt") {
		t.Errorf("%.3000q", text)
	}

	// Prune leaves versions; prune --versions, none.
	run(0, "pack", dir, set, "--overwrite", "--format", "tar", "--quiet")
	run(0, "prune", set, "--grace", "0s")
	if left, _ := with("text of a.txt"); len(left) == 0 {
		t.Error("nothing is left to delete")
	}
	text, _ := run(0, "prune", set, "--grace", "0s", "--versions", "--json")
	left, current := with("text of a.txt")
	if len(left) > 0 || len(current) == 0 || !strings.Contains(text, `"versions_left":[]`) && !strings.Contains(text, `"versions_left": []`) {
		t.Errorf("left %q, current %q: %s", left, current, text)
	}
	run(0, "verify", set, "--deep", "--quiet")
}
