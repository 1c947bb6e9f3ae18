package keysort

import "slices"

// fewEntries is the length from which comparing is faster than distributing by a byte.
const fewEntries = 64

// sortEntries sorts a. scratch is as long as a.
func sortEntries[R Record](a, scratch []R) { sortFrom(a, scratch, 64) }

// sortFrom sorts entries whose hashes differ in their lowest bits only. It distributes them by the
// highest byte of those bits, then sorts the groups. Each level reads and writes a once, whatever
// the hashes are.
func sortFrom[R Record](a, scratch []R, bits uint) {
	if len(a) <= fewEntries || bits == 0 { // at bits = 0 all hashes are equal
		sortFew(a)
		return
	}
	bits -= 8
	var counts [256]int
	for i := range a {
		counts[byte(hash(&a[i])>>bits)]++
	}
	var at [256]int
	begin := 0
	for i, n := range counts {
		at[i] = begin
		begin += n
	}
	for i := range a {
		d := byte(hash(&a[i]) >> bits)
		scratch[at[d]] = a[i]
		at[d]++
	}
	copy(a, scratch)
	for i, end := range at {
		if begin := end - counts[i]; counts[i] > 1 {
			sortFrom(a[begin:end], scratch[begin:end], bits)
		}
	}
}

func sortFew[R Record](a []R) {
	if len(a) > fewEntries {
		slices.SortFunc(a, compare)
		return
	}
	for i := 1; i < len(a); i++ {
		e, k := a[i], i
		for ; k > 0 && less(&e, &a[k-1]); k-- {
			a[k] = a[k-1]
		}
		a[k] = e
	}
}

func less[R Record](a, b *R) bool {
	return hash(a) < hash(b) || hash(a) == hash(b) && compare(*a, *b) < 0
}

func compare[R Record](a, b R) int { return slices.Compare(numbers(&a), numbers(&b)) }
