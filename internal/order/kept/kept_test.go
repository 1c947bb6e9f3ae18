package kept

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestKept(t *testing.T) {
	f := Folder(filepath.Join(t.TempDir(), "a", "b"))
	key, payload := KeyOf("plan", "1"), []byte("the payload")
	if f.Get("plan", key, 100) != nil {
		t.Fatal("got what was not kept")
	}
	if err := f.Put("plan", key, payload); err != nil {
		t.Fatal(err)
	}
	if got := f.Get("plan", key, 11); !bytes.Equal(got, payload) {
		t.Fatalf("got %q", got)
	}
	if f.Get("plan", key, 10) != nil || f.Get("lengths", key, 100) != nil || f.Get("plan", KeyOf("plan1"), 100) != nil {
		t.Error("got a payload that is too large, or of another kind or key")
	}
	name := f.path("plan", key)
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for i := range text {
		damaged := bytes.Clone(text)
		damaged[i] ^= 1
		if err := os.WriteFile(name, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		if f.Get("plan", key, 100) != nil {
			t.Fatalf("got a payload of a file damaged at %d", i)
		}
		if err := os.WriteFile(name, text[:i], 0o600); err != nil {
			t.Fatal(err)
		}
		if f.Get("plan", key, 100) != nil {
			t.Fatalf("got a payload of a file cut at %d", i)
		}
	}
	other := KeyOf("plan", "2") // the file of another key under this name
	if err := f.Put("plan", other, payload); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(f.path("plan", other), name); err != nil {
		t.Fatal(err)
	}
	if f.Get("plan", key, 100) != nil {
		t.Error("got the payload of another key")
	}
	if err := Folder(name).Put("plan", key, payload); err == nil {
		t.Error("a file was taken for a folder")
	}
}

// Beyond the limit the files written first go, and what is not ours stays.
func TestTrim(t *testing.T) {
	f := Folder(t.TempDir())
	old := time.Now().Add(-48 * time.Hour)
	for i, n := range []string{"1", "2", "3"} {
		if err := f.Put("plan", KeyOf(n), make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(f.path("plan", KeyOf(n)), old, old.Add(time.Duration(i)*time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"notes.txt", ".kept-123"} {
		if err := os.WriteFile(filepath.Join(string(f), name), make([]byte, 5000), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(filepath.Join(string(f), name), old, old); err != nil {
			t.Fatal(err)
		}
	}
	f.trim(2200)
	for name, want := range map[string]bool{
		f.path("plan", KeyOf("1")): false, f.path("plan", KeyOf("2")): true, f.path("plan", KeyOf("3")): true,
		filepath.Join(string(f), "notes.txt"): true, filepath.Join(string(f), ".kept-123"): false,
	} {
		if _, err := os.Stat(name); (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}
