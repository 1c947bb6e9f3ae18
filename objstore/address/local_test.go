package address_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/objstore/address"
)

// TestLocal: a path has four forms, and a file of another host is refused.
func TestLocal(t *testing.T) {
	home := t.TempDir()
	t.Chdir(t.TempDir())
	t.Setenv("HOME", home)
	for addr, want := range map[string]string{
		"file:///data/a b": "/data/a b", "file:///data/a%20b%25": "/data/a b%", "file://localhost/data": "/data", "file:/data": "/data", "FILE:///data": "/data",
		"file:///data/out#clean": "/data/out#clean", "~": home, "~/a": home + "/a", "~root/a": "~root/a", "a/~": "a/~", "s3://b/~": "s3://b/~",
		"file": "file", "file:x": "file:x", "": "", "/": "/",
	} {
		if got, err := address.Local(addr); err != nil || got != want {
			t.Errorf("%q: %q, %v, want %q", addr, got, err, want)
		}
	}
	for addr, want := range map[string]string{
		"file://host/data": `names the host "host"`, "file://": "give a path", "file://data": `names the host "data"`, "file:///a%": "write %25", "file:///a%00b": "NUL",
	} {
		if _, err := address.Local(addr); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", addr, err, want)
		}
		if _, err := address.Open(t.Context(), addr, address.Options{}); err == nil {
			t.Errorf("%q was opened", addr)
		}
	}
	store, err := address.Open(t.Context(), "~/out", address.Options{})
	if err != nil || store.String() != filepath.Join(home, "out") {
		t.Error(store, err)
	}
	if at, err := address.Layer("file:///data", "captions"); err != nil || at != "/data/layers/captions" {
		t.Error(at, err)
	}
	if err := os.Mkdir("~", 0o755); err != nil {
		t.Fatal(err)
	}
	if got, err := address.Local("~/a"); err != nil || got != "~/a" {
		t.Error(got, err)
	}
}

// TestElsewhere: no folder is made that is called as a place on another host is.
func TestElsewhere(t *testing.T) {
	if filepath.VolumeName("c:/data") != "" {
		t.Skip("this system has drives")
	}
	t.Chdir(t.TempDir())
	for addr, want := range map[string]string{
		"user@host:/data/out": "`rsync -a out/ user@host:/data/out`", "host:/out": "another host", "host:": "another host",
		"user@host:out": "another host", "host:~/out": "another host", `C:\data\out`: "no drives", "c:/data": "no drives",
	} {
		if _, err := address.Open(t.Context(), addr, address.Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", addr, err)
		}
		if _, err := address.Open(t.Context(), "./"+addr, address.Options{}); err != nil {
			t.Error(err)
		}
		first, _, _ := strings.Cut(addr, "/")
		if err := os.Mkdir(first, 0o777); err != nil {
			t.Fatal(err)
		}
		if _, err := address.Open(t.Context(), addr, address.Options{}); err != nil {
			t.Errorf("a folder that exists: %v", err)
		}
		if err := os.Remove(first); err != nil {
			t.Fatal(err)
		}
	}
}
