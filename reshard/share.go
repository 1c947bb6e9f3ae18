package reshard

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

// Share is a part of all possible keys, from one percentage to another. Two shares that do not
// overlap have no sample in common, shares that cover 0% to 100% have all samples, and a sample
// stays in its share whatever is added to the data set.
//
// A key's place is ⌊h × 10^11 ÷ 2^64⌋, where h is the first 8 bytes of SHA-256(Salt ‖ key) as a
// big-endian number: without a salt the key hash of SPEC 8. A share has the places from From × 10^9
// to To × 10^9, without the latter, both in per cent.
type Share struct {
	// From and To are in billionths of a per cent; both 0 mean everything.
	From, To int64
	// Salt makes a division independent of others.
	Salt string
	// Folders hashes what precedes a key's last slash in place of the key, so that the samples of a
	// folder stay together. Keys without a slash are hashed whole.
	Folders bool
}

// percent is 1 % and whole 100 %, in billionths of a per cent.
const (
	percent = 1_000_000_000
	whole   = 100 * percent
)

// ParseShare parses a share such as 0%..90% or 99.5%..100%.
func ParseShare(text string) (Share, error) {
	bad := fmt.Errorf("share %q: write two percentages, such as 0%%..90%%", text)
	from, to, ok := strings.Cut(text, "..")
	var s Share
	var ok1, ok2 bool
	if s.From, ok1 = parsePercent(from); !ok || !ok1 {
		return s, bad
	}
	if s.To, ok2 = parsePercent(to); !ok2 || s.To > whole || s.From >= s.To {
		return s, bad
	}
	return s, nil
}

// parsePercent parses a percentage of up to nine decimals.
func parsePercent(text string) (int64, bool) {
	text, ok := strings.CutSuffix(text, "%")
	before, after, _ := strings.Cut(text, ".")
	if !ok || len(before) == 0 || len(before) > 3 || len(after) > 9 {
		return 0, false
	}
	n, err := strconv.ParseUint(before+after+strings.Repeat("0", 9-len(after)), 10, 63)
	return int64(n), err == nil
}

func (s Share) String() string {
	text := func(n int64) string {
		return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%d.%09d", n/percent, n%percent), "0"), ".") + "%"
	}
	if s.all() {
		return "0%..100%"
	}
	return text(s.From) + ".." + text(s.To)
}

func (s Share) check() error {
	if s.From < 0 || s.From > s.To || s.To > whole || s.From == s.To && s.To != 0 {
		return optionf("share", "%d to %d billionths of a per cent: give a rising range within 100 %%", s.From, s.To)
	}
	return nil
}

func (s Share) all() bool { return s.From == 0 && (s.To == 0 || s.To == whole) }

// fraction is the share as a number from 0 to 1.
func (s Share) fraction() float64 {
	if s.all() {
		return 1
	}
	return float64(s.To-s.From) / whole
}

// holds reports whether a key is in the share.
func (s Share) holds(key []byte) bool {
	if at := bytes.LastIndexByte(key, '/'); s.Folders && at >= 0 {
		key = key[:at]
	}
	var room [256]byte
	sum := sha256.Sum256(append(append(room[:0], s.Salt...), key...))
	place, _ := bits.Mul64(binary.BigEndian.Uint64(sum[:]), whole)
	return int64(place) >= s.From && int64(place) < s.To
}
