package main

import (
	"slices"
	"testing"
)

func TestParseSeparator(t *testing.T) {
	for text, want := range map[string][]int64{"": nil, "none": nil, "7": {7}, "1, -2": {1, -2}} {
		ids, err := parseSeparator(text)
		if err != nil || !slices.Equal(ids, want) {
			t.Errorf("%q: %v, %v; want %v", text, ids, err, want)
		}
	}
	for _, text := range []string{"x", "1,", "1 2", "1.5", "9223372036854775808", "None"} {
		if ids, err := parseSeparator(text); err == nil {
			t.Errorf("%q: %v", text, ids)
		}
	}
}
