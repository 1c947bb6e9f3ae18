package units

import (
	"math/bits"
	"slices"
)

// item is a sample of a window, or a piece of one.
type item struct {
	sample uint32 // in the window
	offset uint32
	length uint32
}

// former forms the units of one window at a time. Its memory is used again.
type former struct {
	kind  Kind
	size  uint32
	long  Long
	items []item
	// unit has the unit of each item of a pack; order has the items of all units of a bucket, unit by
	// unit.
	unit  []uint32
	order []uint32
	ends  []uint32 // of a bucket: where each unit ends in order

	keys, spare []uint64
	open        []uint64 // sequences with room, ascending: room<<32 | number
}

func newFormer(p Params) *former { return &former{kind: p.Kind, size: p.Size, long: p.Long} }

// reset begins a window.
func (f *former) reset() { f.items = f.items[:0] }

// add adds a sample of the window. It reports false when the window has too many items.
func (f *former) add(sample, length uint32) bool {
	if length <= f.size {
		f.items = append(f.items, item{sample, 0, length})
		return true
	}
	switch f.long {
	case LongError: // drawn by a view in a later epoch than the first
		return false
	case LongTruncate:
		f.items = append(f.items, item{sample, 0, f.size})
	case LongSplit:
		if uint64(len(f.items))+uint64(length/f.size) > maxItems {
			return false
		}
		for at := uint32(0); at < length; at += min(f.size, length-at) {
			f.items = append(f.items, item{sample, at, min(f.size, length-at)})
		}
	}
	return true
}

// form forms the units and returns their number.
func (f *former) form() int {
	if f.kind == Bucket {
		return f.bucket()
	}
	return f.pack()
}

// pack is best fit: items by descending length, each into the fullest sequence that has room.
func (f *former) pack() int {
	n := len(f.items)
	f.keys = f.keys[:0]
	for i := range f.items {
		f.keys = append(f.keys, uint64(f.size-f.items[i].length)<<32|uint64(i))
	}
	f.sort()
	f.unit = slices.Grow(f.unit[:0], n)[:n]
	f.open = f.open[:0]
	sequences := uint32(0)
	for _, key := range f.keys {
		i, length := uint32(key), f.size-uint32(key>>32)
		at := successor(f.open, uint64(length)<<32)
		if at < len(f.open) { // the least room that suffices; of those, the sequence opened first
			room, number := uint32(f.open[at]>>32)-length, uint32(f.open[at])
			f.unit[i] = number
			f.lower(at, uint64(room)<<32|uint64(number))
			continue
		}
		f.unit[i] = sequences
		if room := f.size - length; room > 0 {
			f.insert(uint64(room)<<32 | uint64(sequences))
		}
		sequences++
	}
	return int(sequences)
}

// successor returns the place of the least value that is at least x.
func successor(a []uint64, x uint64) int {
	low, n := 0, len(a)
	for n > 0 { // without a branch that depends on the data
		half := n / 2
		if a[low+half] < x {
			low += n - half
		}
		n = half
	}
	return low
}

// lower makes the value at a place smaller; without room, its sequence is full.
func (f *former) lower(at int, to uint64) {
	if to>>32 == 0 {
		f.open = append(f.open[:at], f.open[at+1:]...)
		return
	}
	new := successor(f.open[:at], to)
	copy(f.open[new+1:at+1], f.open[new:at])
	f.open[new] = to
}

func (f *former) insert(x uint64) {
	if n := len(f.open); n == 0 || f.open[n-1] < x {
		f.open = append(f.open, x)
		return
	}
	f.open = slices.Insert(f.open, successor(f.open, x), x)
}

// bucket groups items by ascending length. A unit closes before count times longest passes the
// size.
func (f *former) bucket() int {
	f.keys = f.keys[:0]
	for i := range f.items {
		f.keys = append(f.keys, uint64(f.items[i].length)<<32|uint64(i))
	}
	f.sort()
	f.order, f.ends = f.order[:0], f.ends[:0]
	count := uint64(0)
	for at, key := range f.keys {
		if count > 0 && (count+1)*(key>>32) > uint64(f.size) {
			f.ends = append(f.ends, uint32(at))
			count = 0
		}
		count++
		f.order = append(f.order, uint32(key))
	}
	if count > 0 {
		f.ends = append(f.ends, uint32(len(f.keys)))
	}
	return len(f.ends)
}

// group lists the items of all units, unit by unit in the order in which they were opened. The
// items of unit u are order[ends[u-1]:ends[u]]. Call it after form, which returned n.
func (f *former) group(n int) {
	if f.kind == Bucket {
		return
	}
	f.ends = append(f.ends[:0], make([]uint32, n)...)
	for _, u := range f.unit {
		f.ends[u]++
	}
	var sum uint32
	for u, count := range f.ends { // ends[u] is where unit u begins, until its items are placed
		f.ends[u] = sum
		sum += count
	}
	f.order = slices.Grow(f.order[:0], int(sum))[:sum]
	for i, u := range f.unit {
		f.order[f.ends[u]] = uint32(i)
		f.ends[u]++
	}
}

// sort sorts keys by their high halves and keeps the order of equal ones. The low halves ascend.
func (f *former) sort() {
	n := len(f.keys)
	if n <= 64 {
		slices.Sort(f.keys)
		return
	}
	var used uint64
	for _, key := range f.keys {
		used |= key
	}
	f.spare = slices.Grow(f.spare[:0], n)[:n]
	const digit = 8
	for shift := 32; shift < bits.Len64(used); shift += digit {
		var start [1 << digit]uint32
		for _, key := range f.keys {
			start[key>>shift&(1<<digit-1)]++
		}
		var sum uint32
		for d, count := range start {
			start[d] = sum
			sum += count
		}
		for _, key := range f.keys {
			at := &start[key>>shift&(1<<digit-1)]
			f.spare[*at] = key
			*at++
		}
		f.keys, f.spare = f.spare, f.keys
	}
}
