package codec

import (
	"reflect"
	"unsafe"

	"github.com/klauspost/compress/zstd"
)

const (
	// pageSize is the smallest page of the systems that the library has assembly for.
	pageSize = 4096
	// placeTries is how many decoders are made for one in a good place. The heap fills its places in
	// order, and two neighbours are never both bad.
	placeTries = 4
)

// newReader returns a zstd decoder whose state of a frame lies within one page of memory.
//
// For most sequences the decoder's loop stores 16 bytes of that state, and loads them for the next
// sequence. One of the twelve places that a span of the heap has for the state puts these bytes
// across the end of a page. Such a store is slow on amd64: a decoder in that place runs at two
// thirds of its speed for as long as it lives.
func newReader(opts ...zstd.DOption) (*zstd.Decoder, error) {
	for try := 1; ; try++ {
		z, err := zstd.NewReader(nil, opts...)
		if err != nil || try == placeTries || !crossesPage(statePlace(z)) {
			return z, err
		}
		defer z.Close() // not sooner: the next one could get its place
	}
}

// crossesPage reports whether size bytes at an address lie in more than one page.
func crossesPage(at, size uintptr) bool { return at%pageSize+size > pageSize }

// statePlace returns the address and the size of the state of a decoder that is not in use. They
// are 0 for a version of the library that keeps its state elsewhere.
func statePlace(z *zstd.Decoder) (at, size uintptr) {
	idle := reflect.ValueOf(z).Elem().FieldByName("decoders")
	if idle.Kind() != reflect.Chan || idle.IsNil() || idle.Type().Elem().Kind() != reflect.Pointer {
		return 0, 0
	}
	idle = reflect.NewAt(idle.Type(), unsafe.Pointer(idle.UnsafeAddr())).Elem() // as if exported
	block, ok := idle.TryRecv()
	if !ok {
		return 0, 0
	}
	defer idle.Send(block)
	if block.Elem().Kind() != reflect.Struct {
		return 0, 0
	}
	state := block.Elem().FieldByName("localFrame")
	if state.Kind() != reflect.Pointer {
		return 0, 0
	}
	return state.Pointer(), state.Type().Elem().Size()
}
