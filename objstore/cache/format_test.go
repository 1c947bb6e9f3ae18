package cache

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"
)

// TestFormat fixes the bytes of a file and of the record, and the names, because processes of other
// versions share the folder.
func TestFormat(t *testing.T) {
	r := newRig(t, 3)
	const (
		identity = "96927e2200dbcab819d756b41193e5ccaccc1cf9cf8d8df65ef8e86bf0186086" // SHA-256 of "given hash"
		group    = "3d4df062f5309db3"                                                 // begins the SHA-256 of "far:"
	)
	want := "7374636163686501" + identity + "0000000000000000" + "03000000" + "7036aad8" + "00000000" + "1a95f70e" + "6ae678"
	if got := hex.EncodeToString(r.good); got != want {
		t.Errorf("file %s", got)
	}
	name, err := filepath.Rel(r.dir, r.path)
	if want := "d-" + group + "/45/" + identity[:40] + "-0-3"; err != nil || filepath.ToSlash(name) != want {
		t.Errorf("name %s, %v", name, err)
	}
	got := hex.EncodeToString(appendState(nil, 4096))
	if want := "7374637374617401" + "0010000000000000" + "0000000000000000" + "00000000"; got[:len(want)] != want {
		t.Errorf("record %s", got)
	}
	file, err := os.Open(filepath.Join(r.dir, stateName))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if total, ok := readState(file); !ok || total != grain {
		t.Errorf("%d, %v", total, ok)
	}
}

// TestOlder opens a folder as an older program left it when it was killed: the range is used, the
// rest is removed, and the folder is counted.
func TestOlder(t *testing.T) {
	r := newRig(t, 300)
	if err := r.cache.Close(); err != nil {
		t.Fatal(err)
	}
	// 4 GiB in use, counted at some time, and a flag that a process is changing the folder.
	record, err := hex.DecodeString("7374637374617401" + "0000000001000000" + "0000000000000010" + "01000000" + "cbdbd45e")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(r.dir, stateName), record, 0o600); err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(r.dir, tempDir, "0123456789abcdef")
	if err := os.WriteFile(left, make([]byte, 10_000), 0o600); err != nil {
		t.Fatal(err)
	}
	c := newCache(t, r.dir, 1<<20)
	expect(t, open(t, c.Wrap(r.source), "shard", "hash"), 0, 300, r.data)
	if s := c.Stats(); s.Hits != 1 || s.Used != grain || s.Errors != 0 {
		t.Errorf("%+v", s)
	}
	if _, err := os.Lstat(left); err == nil {
		t.Error("the unfinished file is still there")
	}
}

// TestNames checks which names belong to the cache and which only look similar.
func TestNames(t *testing.T) {
	const id = "96927e2200dbcab819d756b41193e5ccaccc1cf9"
	for name, own := range map[string]bool{
		id + "-0-3": true, id + "-7fffffffffffffff-7fffffbf": true,
		id: false, id + "-0": false, id + "--3": false, id + "-0-": false, id + "-0-3-4": false, id + "-0-G": false,
		id + "-0-3.bak": false, id[1:] + "-0-3": false, "A" + id[1:] + "-0-3": false, id + "-00000000000000000-3": false,
		"": false, "--": false,
	} {
		if isPiece(name) != own {
			t.Errorf("%q: %v", name, !own)
		}
	}
	for name, own := range map[string]bool{
		stateName: true, aliveName: true, tempDir: true, "d-0123456789abcdef": true,
		"d-0123456789abcde": false, "d-0123456789ABCDEF": false, "e-0123456789abcdef": false, "shards": false, ".git": false,
	} {
		if isOwn(name) != own {
			t.Errorf("%q: %v", name, !own)
		}
	}
}
