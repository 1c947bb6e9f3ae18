package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/objstore/storetest/azserver"
	"github.com/shardtool/shardtool/objstore/storetest/gsserver"
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
	refusals := 0 // of a lock that ends in the middle of the next purge
	bucket.Locked = func(key, version string) bool {
		if key == lock && version == id {
			refusals++
		}
		return key == lock && version == id && refusals <= 1
	}
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
	left, _ := with("text of a.txt")
	if len(left) == 0 {
		t.Fatal("nothing is left to delete")
	}
	// One is locked, and then deleted by a rule of the bucket: the receipt does not say that it is left.
	lock, id, _ = strings.Cut(left[0], " ")
	refusals = 0
	bucket.Mu.Lock()
	bucket.Locked = func(key, version string) bool {
		if key != lock || version != id {
			return false
		}
		if refusals++; refusals == 2 {
			bucket.Versions[key] = slices.DeleteFunc(bucket.Versions[key], func(v s3server.Version) bool { return v.ID == id })
		}
		return true
	}
	bucket.Mu.Unlock()
	text, _ := run(0, "prune", set, "--grace", "0s", "--versions", "--json")
	left, current := with("text of a.txt")
	if refusals != 2 {
		t.Errorf("%d refusals", refusals)
	}
	if len(left) > 0 || len(current) == 0 || !strings.Contains(text, `"versions_left":[]`) && !strings.Contains(text, `"versions_left": []`) {
		t.Errorf("left %q, current %q: %s", left, current, text)
	}
	run(0, "verify", set, "--deep", "--quiet")
}

// TestVersionsOfOthers purges and prunes on Google and Azure, in buckets with versions, with soft
// deletion and with locks: what still has the bytes is in the receipt, and nothing that the store
// kept is called deleted.
func TestVersionsOfOthers(t *testing.T) {
	t.Parallel()
	google, azure := gsserver.New(t), azserver.New(t)
	type bucket struct {
		address string
		set     func(versioned, soft bool)
		lock    func(text string, refusals int) // what may not be deleted; it ends after so many, unless that is 0
		with    func(text string) (gone, current []string)
	}
	has := func(data []byte, text string) bool { return text != "" && bytes.Contains(data, []byte(text)) }
	// refuses returns the code of a lock until it has ended.
	refuses := func(made *int, most int, code string) string {
		if *made++; most > 0 && *made > most {
			return ""
		}
		return code
	}
	for name, b := range map[string]bucket{
		"gs": {
			"gs://bucket/set?anonymous=true&endpoint=" + google.URL,
			func(versioned, soft bool) {
				google.Mu.Lock()
				defer google.Mu.Unlock()
				google.Versioned, google.Soft = versioned, soft
			},
			func(text string, refusals int) {
				google.Mu.Lock()
				defer google.Mu.Unlock()
				made := 0
				google.Locked = func(name string, generation int64) string {
					for _, o := range append(slices.Clone(google.Versions[name]), google.Objects[name]) {
						if o != nil && o.Generation == generation && has(o.Data, text) {
							return refuses(&made, refusals, "retentionPolicyNotMet")
						}
					}
					return ""
				}
			},
			func(text string) (gone, current []string) {
				google.Mu.Lock()
				defer google.Mu.Unlock()
				for _, kept := range []map[string][]*gsserver.Stored{google.Versions, google.SoftDeleted} {
					for name, all := range kept {
						for _, o := range all {
							if has(o.Data, text) {
								gone = append(gone, name+" "+fmt.Sprint(o.Generation))
							}
						}
					}
				}
				for name, o := range google.Objects {
					if has(o.Data, text) {
						current = append(current, name)
					}
				}
				return gone, current
			},
		},
		"az": {
			"az://acct/box/set?endpoint=" + azure.URL,
			func(versioned, soft bool) {
				azure.Mu.Lock()
				defer azure.Mu.Unlock()
				azure.Versioned, azure.Soft = versioned, soft
			},
			func(text string, refusals int) {
				azure.Mu.Lock()
				defer azure.Mu.Unlock()
				made := 0
				azure.Locked = func(name, version string) string {
					for _, o := range append(slices.Clone(azure.Versions[name]), azure.Objects[name]) {
						if o != nil && o.Version == version && has(o.Data, text) {
							return refuses(&made, refusals, "BlobImmutableDueToPolicy")
						}
					}
					return ""
				}
			},
			func(text string) (gone, current []string) {
				azure.Mu.Lock()
				defer azure.Mu.Unlock()
				for name, all := range azure.Versions {
					for _, o := range all {
						if has(o.Data, text) {
							id := o.Version
							if id == "" {
								id = "soft-deleted"
							}
							gone = append(gone, name+" "+id)
						}
					}
				}
				for name, o := range azure.Objects {
					if has(o.Data, text) {
						current = append(current, name)
					}
				}
				return gone, current
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			run := func(code int, args ...string) (stdout, stderr string) {
				t.Helper()
				cmd := exec.Command("shardtool", args...)
				cmd.Env = append(os.Environ(), "AZURE_STORAGE_ACCOUNT_KEY=bWFya2VkIGFjY291bnQga2V5")
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
			// listed checks that the receipt has all of the versions and no others of their names.
			listed := func(r writer.PurgeReport, gone []string) {
				t.Helper()
				for _, version := range gone {
					key, id, _ := strings.Cut(version, " ")
					if !slices.ContainsFunc(r.VersionsLeft, func(v writer.KeptVersion) bool { return "set/"+v.Name == key && v.ID == id }) {
						t.Errorf("the receipt lacks %s: %+v", version, r.VersionsLeft)
					}
				}
			}
			dir := t.TempDir()
			for _, file := range []string{"a.txt", "b.txt", "c.txt"} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte("text of "+file), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			pack := func() {
				run(0, "pack", dir, b.address, "--format", "tar", "--samples-per-shard", "1", "--quiet", "--overwrite")
			}

			b.set(true, false)
			pack()
			run(0, "remove", b.address, "b")
			r, _ := receipt(0, "purge", b.address, "--generations")
			gone, there := b.with("text of b.txt")
			if len(gone) == 0 || len(there) > 0 || !r.Versions {
				t.Fatalf("noncurrent %q, current %q, %+v", gone, there, r)
			}
			listed(r, gone)
			b.lock("text of b.txt", 0)
			r, stderr := receipt(1, "purge", b.address, "--versions")
			if gone, _ = b.with("text of b.txt"); len(gone) == 0 || len(r.VersionsDeleted) == 0 || !strings.Contains(stderr, "were to be deleted") {
				t.Errorf("%q, %+v, %s", gone, r, stderr)
			}
			listed(r, gone)
			b.lock("text of b.txt", 1) // and ends in the middle of the purge
			r, _ = receipt(0, "purge", b.address, "--versions")
			if gone, _ = b.with("text of b.txt"); len(gone) > 0 || r.Versions || len(r.VersionsLeft) > 0 {
				t.Errorf("%q, %+v", gone, r)
			}

			// Soft deletion: the receipt says that the store deletes them later.
			b.set(true, true)
			run(0, "remove", b.address, "c")
			run(0, "purge", b.address, "--generations")
			r, stderr = receipt(1, "purge", b.address, "--versions")
			gone, _ = b.with("text of c.txt")
			if len(gone) == 0 || !r.Versions || !strings.Contains(stderr, "soft deletion") {
				t.Errorf("%q, %+v, %s", gone, r, stderr)
			}
			listed(r, gone)
			for _, v := range r.VersionsDeleted {
				if slices.Contains(gone, "set/"+v.Name+" "+v.ID) {
					t.Errorf("%+v is kept and is called deleted", v)
				}
			}

			// A lock on current objects: they are not called deleted, and what tables lead to stays.
			b.set(false, false)
			pack()
			run(0, "remove", b.address, "b")
			run(0, "purge", b.address)
			b.lock("text of b.txt", 0)
			r, stderr = receipt(1, "purge", b.address, "--generations")
			_, there = b.with("text of b.txt")
			if len(there) == 0 || len(r.Deleted) == 0 || !strings.Contains(stderr, "were to be deleted, such as ") {
				t.Errorf("%q, %+v, %s", there, r, stderr)
			}
			for _, name := range there {
				name = strings.TrimPrefix(name, "set/")
				if slices.Contains(r.Deleted, name) || !slices.Contains(r.Holding, name) {
					t.Errorf("%s: deleted %q, holding %q", name, r.Deleted, r.Holding)
				}
			}
			// Once the lock has ended, in the middle of a purge, it deletes what stayed: it still knows whose
			// it is.
			b.lock("text of b.txt", 1)
			if r, _ = receipt(0, "purge", b.address, "--generations"); len(r.Holding) > 0 || len(r.Deleted) == 0 {
				t.Errorf("%+v", r)
			}
			if _, there = b.with("text of b.txt"); len(there) > 0 {
				t.Errorf("%q stays", there)
			}
			b.lock("text of a.txt", 0)
			if text, stderr := run(1, "prune", b.address, "--grace", "0s"); !strings.Contains(text, "not deleted: ") || !strings.Contains(stderr, "the store kept 2 objects") {
				t.Errorf("%s%s", text, stderr)
			}
			b.lock("", 0)
			if text, _ := run(0, "prune", b.address, "--grace", "0s"); strings.Contains(text, "left data-") {
				t.Error(text)
			}
			run(0, "verify", b.address, "--deep", "--quiet")
		})
	}
}
