package main

import "testing"

func TestMedian(t *testing.T) {
	for _, test := range []struct {
		of   sample
		want float64
	}{{sample{3}, 3}, {sample{4, 1}, 2.5}, {sample{9, 1, 2}, 2}, {sample{1, 8, 2, 4}, 3}} {
		if got := test.of.median(); got != test.want {
			t.Errorf("median of %v is %v, want %v", test.of, got, test.want)
		}
	}
}
