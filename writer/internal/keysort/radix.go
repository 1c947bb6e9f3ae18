package keysort

import (
	"slices"

	"github.com/shardtool/shardtool/internal/samplekey"
)

// fewEntries is the length from which comparing is faster than distributing by a byte.
const fewEntries = 64

// sortEntries sorts a. scratch is as long as a.
func sortEntries(a, scratch []samplekey.Entry) { sortFrom(a, scratch, 64) }

// sortFrom sorts entries whose hashes differ in their lowest bits only. It distributes them by the
// highest byte of those bits, then sorts the groups. Each level reads and writes a once, whatever
// the hashes are.
func sortFrom(a, scratch []samplekey.Entry, bits uint) {
	if len(a) <= fewEntries || bits == 0 { // at bits = 0 all hashes are equal
		sortFew(a)
		return
	}
	bits -= 8
	var counts [256]int
	for i := range a {
		counts[byte(a[i].Hash>>bits)]++
	}
	var at [256]int
	begin := 0
	for i, n := range counts {
		at[i] = begin
		begin += n
	}
	for _, e := range a {
		d := byte(e.Hash >> bits)
		scratch[at[d]] = e
		at[d]++
	}
	copy(a, scratch)
	for i, end := range at {
		if begin := end - counts[i]; counts[i] > 1 {
			sortFrom(a[begin:end], scratch[begin:end], bits)
		}
	}
}

func sortFew(a []samplekey.Entry) {
	if len(a) > fewEntries {
		slices.SortFunc(a, samplekey.Entry.Compare)
		return
	}
	for i := 1; i < len(a); i++ {
		e, k := a[i], i
		for ; k > 0 && less(e, a[k-1]); k-- {
			a[k] = a[k-1]
		}
		a[k] = e
	}
}

func less(a, b samplekey.Entry) bool {
	return a.Hash < b.Hash || a.Hash == b.Hash && a.Number < b.Number
}
