package mix

// append appends the sources of n positions from q on.
func (x *sequencer) append(dst []uint32, t *tree, q uint64, n int) []uint32 {
	where := make([][]uint32, 1)
	for _, l := range t.leaves {
		where = append(where, make([][]uint32, max(l.source+1-len(where), 0))...)
	}
	first := len(dst)
	x.places(where, t, q, first, n)
	dst = append(dst, make([]uint32, n)...)
	for s, places := range where {
		for _, at := range places {
			dst[at] = uint32(s)
		}
	}
	return dst
}
