package address

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestLayer(t *testing.T) {
	for _, c := range [][3]string{
		{"out/", "captions", "out/layers/captions"},
		{"s3://bucket/photos/", "v2.1", "s3://bucket/photos/layers/v2.1"},
		{"s3://bucket?endpoint=https://host/x", "c", "s3://bucket/layers/c?endpoint=https://host/x"},
		{"hf://datasets/me/photos@v1", "c", "hf://datasets/me/photos@v1/layers/c"},
		{"out", "./mine", "./mine"}, {"out", "/tmp/mine", "/tmp/mine"}, {"out", "s3://me/mine", "s3://me/mine"},
	} {
		if got, err := Layer(c[0], c[1]); got != c[2] || err != nil {
			t.Errorf("%q: %q, %v", c, got, err)
		}
	}
	for _, bad := range []string{"", "a/b", "-x", "a b", "0123456789abcdef"} {
		if got, err := Layer("out", bad); !errors.Is(err, ErrLayer) {
			t.Errorf("%q: %q, %v", bad, got, err)
		}
	}
}

// TestLayerLinked: the folder of a layer is a link, or layers/ is.
func TestLayerLinked(t *testing.T) {
	dir := t.TempDir()
	victim, set := filepath.Join(dir, "victim"), filepath.Join(dir, "set")
	for _, folder := range []string{filepath.Join(victim, "captions"), filepath.Join(set, "layers")} {
		if err := os.MkdirAll(folder, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(set, filepath.Join(dir, "latest")); err != nil {
		t.Fatal(err)
	}
	if _, err := Layer(filepath.Join(dir, "latest"), "captions"); err != nil {
		t.Error(err)
	}
	if err := os.Symlink(victim, filepath.Join(set, "layers", "captions")); err != nil {
		t.Fatal(err)
	}
	if _, err := Layer(set, "captions"); !errors.Is(err, ErrLayer) {
		t.Errorf("a layer that is a link: %v", err)
	}
	if err := errors.Join(os.RemoveAll(filepath.Join(set, "layers")), os.Symlink("../victim", filepath.Join(set, "layers"))); err != nil {
		t.Fatal(err)
	}
	if _, err := Layer(set, "captions"); !errors.Is(err, ErrLayer) {
		t.Errorf("layers/ is a link: %v", err)
	}
}
