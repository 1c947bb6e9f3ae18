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
	got := hex.EncodeToString(state{total: 4096, counted: 1 << 60}.append(nil, true))
	if want := "7374637374617401" + "0010000000000000" + "0000000000000010" + "01000000"; got[:len(want)] != want {
		t.Errorf("record %s", got)
	}
	file, err := os.Open(filepath.Join(r.dir, stateName))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if s, ok := readState(file); !ok || s.total != grain {
		t.Errorf("%+v, %v", s, ok)
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
