package address

import (
	"errors"
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
