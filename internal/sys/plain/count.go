package plain

import "github.com/dustin/go-humanize"

// Plural is "1 shard" or "2 shards".
func Plural[N ~int | ~int64 | ~uint64](n N, what string) string {
	if n != 1 {
		what += "s"
	}
	return Count(uint64(n)) + " " + what
}

// Count is a number with commas, as 1,000.
func Count(n uint64) string { return humanize.Comma(int64(n)) }

// Bytes is a number of bytes in a unit that suits it, as 1.5 MiB.
func Bytes(n uint64) string { return humanize.IBytes(n) }
