package samplekey

import (
	"fmt"
	"math"
	"sort"
	"strconv"
	"strings"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/damage"
)

// Range is the keys of consecutive samples: Prefix, and a number that counts from First, in
// decimal with leading zeros up to Digits.
type Range struct {
	Prefix string
	First  uint64
	Digits uint8
	Count  uint64
}

// maxDigits is the most digits of a 64-bit number.
const maxDigits = 20

// AppendKey appends the i-th key of the range.
func (r *Range) AppendKey(dst []byte, i uint64) []byte {
	dst = append(dst, r.Prefix...)
	at := len(dst)
	dst = strconv.AppendUint(dst, r.First+i, 10)
	if n := int(r.Digits) - (len(dst) - at); n > 0 {
		dst = append(dst, zeroDigits[:n]...)
		copy(dst[at+n:], dst[at:len(dst)-n])
		copy(dst[at:], zeroDigits[:n])
	}
	return dst
}

// is reports whether key is the i-th key of the range, without making that.
func (r *Range) is(key string, i uint64) bool {
	n, at := r.First+i, len(key)
	for at > len(r.Prefix) && (n > 0 || len(key)-at < max(int(r.Digits), 1)) {
		at--
		if key[at] != '0'+byte(n%10) {
			return false
		}
		n /= 10
	}
	return n == 0 && len(key)-at >= max(int(r.Digits), 1) && key[:at] == r.Prefix
}

const zeroDigits = "00000000000000000000"

// find returns the number of a key in the range.
func (r *Range) find(key string) (i uint64, ok bool) {
	text, ok := strings.CutPrefix(key, r.Prefix)
	n, err := strconv.ParseUint(text, 10, 64)
	if !ok || err != nil || n < r.First || n-r.First >= r.Count {
		return 0, false
	}
	i = n - r.First
	return i, string(r.AppendKey(nil, i)) == key
}

// Check returns an error that wraps ErrCorrupt unless a shard can have keys of this range.
func (r *Range) Check() error {
	switch {
	case r.Count == 0 || r.First > math.MaxInt64 || r.Count > math.MaxInt64:
		return damage.Errorf("%d keys from number %d on", r.Count, r.First)
	case r.Digits < 1 || r.Digits > maxDigits:
		return damage.Errorf("keys with a number of %d digits", r.Digits)
	case len(r.Prefix) > format.MaxName-maxDigits:
		return damage.Errorf("keys with a prefix of %d bytes", len(r.Prefix))
	}
	if err := format.CheckKey(r.Prefix + "0"); err != nil {
		return fmt.Errorf("%w: %w", format.ErrCorrupt, err)
	}
	return nil
}

// spans calls f with the first and the last key of each part of the range whose keys have one
// length. These ascend: a number that outgrows the digits makes keys longer.
func (r *Range) spans(f func(first, last string)) {
	last := r.First + r.Count - 1
	for from := r.First; ; {
		to := last
		if limit := pow10(max(digits(from), int(r.Digits))); limit > 0 && limit-1 < last {
			to = limit - 1
		}
		f(string(r.AppendKey(nil, from-r.First)), string(r.AppendKey(nil, to-r.First)))
		if to == last {
			return
		}
		from = to + 1
	}
}

func digits(n uint64) int { return len(strconv.FormatUint(n, 10)) }

// pow10 returns 10^n, or 0 where that has more than 64 bits.
func pow10(n int) uint64 {
	if n > 19 {
		return 0
	}
	p := uint64(1)
	for range n {
		p *= 10
	}
	return p
}

// Ranges are the keys of a shard whose keys are numbered, in storage order. The zero value has
// none.
type Ranges []Range

// Len returns the number of keys.
func (rs Ranges) Len() (n uint64) {
	for i := range rs {
		n += rs[i].Count
	}
	return n
}

// AppendKey appends the i-th key.
func (rs Ranges) AppendKey(dst []byte, i uint64) []byte {
	for r := range rs {
		if i < rs[r].Count {
			return rs[r].AppendKey(dst, i)
		}
		i -= rs[r].Count
	}
	panic("format: a key beyond its ranges")
}

// Find returns the number of a key.
func (rs Ranges) Find(key string) (i uint64, ok bool) {
	before := uint64(0)
	for r := range rs {
		if i, ok := rs[r].find(key); ok {
			return before + i, true
		}
		before += rs[r].Count
	}
	return 0, false
}

// Ends returns the least and the greatest key.
func (rs Ranges) Ends() (least, greatest string) {
	any := false
	for i := range rs {
		rs[i].spans(func(lo, hi string) {
			if !any {
				least, greatest, any = lo, hi, true
			}
			least, greatest = min(least, lo), max(greatest, hi)
		})
	}
	return least, greatest
}

// Add adds the next key. It begins a range unless the key continues the last one.
func (rs *Ranges) Add(key string) {
	if n := len(*rs); n > 0 {
		last := &(*rs)[n-1]
		if last.is(key, last.Count) {
			last.Count++
			return
		}
	}
	*rs = append(*rs, keyRangeOf(key))
}

// Join adds the next range, as a part of the last one where it continues that.
func (rs *Ranges) Join(r Range) {
	if n := len(*rs); n > 0 {
		last := &(*rs)[n-1]
		if last.Prefix == r.Prefix && last.First+last.Count == r.First &&
			string(last.AppendKey(nil, last.Count)) == string(r.AppendKey(nil, 0)) &&
			string(last.AppendKey(nil, last.Count+r.Count-1)) == string(r.AppendKey(nil, r.Count-1)) {
			last.Count += r.Count
			return
		}
	}
	*rs = append(*rs, r)
}

// keyRangeOf returns the range of one key: its last digits are the number, at most 18 of them.
func keyRangeOf(key string) Range {
	at := len(key)
	for at > 0 && len(key)-at < 18 && key[at-1] >= '0' && key[at-1] <= '9' {
		at--
	}
	if at == len(key) { // no number: a range whose key is found nowhere else
		return Range{Prefix: key, Count: 1}
	}
	n, _ := strconv.ParseUint(key[at:], 10, 64) // at most 18 digits
	return Range{Prefix: key[:at], First: n, Digits: uint8(len(key) - at), Count: 1}
}

// Numbered reports whether all keys have a number: other ranges cannot be stored.
func (rs Ranges) Numbered() bool {
	for i := range rs {
		if rs[i].Digits == 0 {
			return false
		}
	}
	return true
}

// keySpan is a part of a range whose keys have one length, which therefore ascend.
type keySpan struct {
	lo, hi string
	of     int
}

// Shared returns a key that two of the ranges have, if there is one.
func (rs Ranges) Shared() (key string, ok bool) {
	var spans []keySpan
	for i := range rs {
		rs[i].spans(func(lo, hi string) { spans = append(spans, keySpan{lo, hi, i}) })
	}
	sort.Slice(spans, func(a, b int) bool {
		if len(spans[a].lo) != len(spans[b].lo) {
			return len(spans[a].lo) < len(spans[b].lo)
		}
		return spans[a].lo < spans[b].lo
	})
	// Among keys of one length the sets are intervals of text. Two that share a key overlap, but one
	// that only encloses another in the order of texts may share none with it.
	for i := range spans {
		for j := i + 1; j < len(spans) && len(spans[j].lo) == len(spans[i].lo) && spans[j].lo <= spans[i].hi; j++ {
			a, b := &rs[spans[i].of], &rs[spans[j].of]
			if _, in := a.find(spans[j].lo); in {
				return spans[j].lo, true
			}
			if _, in := b.find(spans[i].hi); in {
				return spans[i].hi, true
			}
			if len(b.Prefix) < len(a.Prefix) { // b's keys are finer: a's first may lie between two of b's
				if _, in := b.find(spans[i].lo); in {
					return spans[i].lo, true
				}
			}
		}
	}
	return "", false
}
