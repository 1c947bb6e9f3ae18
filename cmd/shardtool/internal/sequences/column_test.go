package sequences

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/shardtool/shardtool/internal/format/npy"
)

// headerOf is that of an array with n values, as NumPy writes it.
func headerOf(descr string, n int64) []byte {
	dict := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%d,), }", descr, n)
	return fmt.Appendf([]byte("\x93NUMPY\x01\x00\x76\x00"), "%-117s\n", dict)
}

// TestHeadersAgreeWithParsing: whatever is done to a header, its number of values is the one that
// parsing finds, or it is parsed.
func TestHeadersAgreeWithParsing(t *testing.T) {
	var h headers
	r := rand.New(rand.NewPCG(1, 2))
	known := 0
	for i := range 200_000 {
		n := r.Int64N(1 << r.IntN(31))
		header := headerOf("<i4", n)
		for range r.IntN(3) {
			if at := r.IntN(len(header) + 1); r.IntN(2) == 0 && at < len(header) {
				header[at] = "0123456789,() }'\n"[r.IntN(17)]
			} else {
				header = header[:at]
			}
		}
		want, err := npy.Parse(header)
		if got, ok := h.count(header); ok {
			if known++; err != nil || len(want.Shape) != 1 || want.Shape[0] != got || want.Descr != "<i4" {
				t.Fatalf("header %d, %q: %d values without parsing; %+v, %v", i, header, got, want, err)
			}
		} else if err == nil && len(want.Shape) == 1 && want.Descr == "<i4" {
			h.learn(header, want.Shape[0])
		}
	}
	if known < 50_000 {
		t.Errorf("%d headers needed no parsing", known)
	}
}

// TestHeadersOfAnotherType are not taken for those learned.
func TestHeadersOfAnotherType(t *testing.T) {
	var h headers
	h.learn(headerOf("<i4", 17), 17)
	if n, ok := h.count(headerOf("<i4", 42)); !ok || n != 42 {
		t.Errorf("%d, %v for another number of as many digits", n, ok)
	}
	for _, other := range [][]byte{headerOf("<i8", 42), headerOf("<i4", 420), headerOf("<f4", 17), nil, []byte("\x93NUMPY")} {
		if n, ok := h.count(other); ok {
			t.Errorf("%q: %d values, though no such header was learned", other, n)
		}
	}
}
