package keysort

import (
	"unsafe"

	"github.com/shardtool/shardtool/internal/format/samplekey"
)

// Checked is a key by two hashes, with a value.
type Checked struct{ Hash, Check, Value uint64 }

// Record is a struct of numbers, of which the first is the hash. Records are ordered by their
// numbers.
type Record interface{ samplekey.Entry | Checked }

// hash returns the hash of a record.
func hash[R Record](r *R) uint64 { return *(*uint64)(unsafe.Pointer(r)) }

// numbers returns the numbers of a record.
func numbers[R Record](r *R) []uint64 {
	return unsafe.Slice((*uint64)(unsafe.Pointer(r)), unsafe.Sizeof(*r)/8)
}
