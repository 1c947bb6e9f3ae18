package serve

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/shardtool/shardtool/internal/format/npy"
)

// arrayType is the type of an array as the parent gets it.
type arrayType struct {
	Dtype   string `json:"dtype"`
	Shape   []int  `json:"shape"`
	Fortran bool   `json:"fortran_order"`
}

// json returns the type as JSON.
func (t arrayType) json() []byte {
	text, _ := json.Marshal(t) // texts and integers
	return text
}

// parseNpy reads the header of an npy file. size is the bytes of data that follow. plain is false
// for arrays whose items are no numbers or fixed strings (structured ones, objects, dates): these
// are distinguished from damage.
func parseNpy(header []byte) (t arrayType, size int, plain bool, err error) {
	h, err := npy.Parse(header)
	if err != nil {
		return t, 0, false, err
	}
	size, plain = itemSize(h)
	if !plain {
		return t, 0, false, nil
	}
	t = arrayType{h.Descr, make([]int, len(h.Shape)), h.Fortran}
	for i, n := range h.Shape {
		if n > 0 && int64(size) > maxRegion/n {
			return arrayType{}, 0, false, fmt.Errorf("an npy file of shape %v", h.Shape)
		}
		size *= int(n)
		t.Shape[i] = int(n)
	}
	return t, size, true, nil
}

// itemSize is the bytes of one item; not ok for Python objects, dates, and what has fields.
func itemSize(h npy.Header) (n int, ok bool) {
	if len(h.Descr) < 3 || !strings.ContainsRune("<>|=", rune(h.Descr[0])) { // names of types as numpy writes them
		return 0, false
	}
	switch h.Kind {
	case 'i', 'u', 'f', 'b', 'c':
		return h.Size, true
	case 'S', 'U', 'V':
	default:
		return 0, false
	}
	n, err := strconv.Atoi(h.Descr[2:])
	if err != nil || n < 1 || n > 1<<20 {
		return 0, false
	}
	if h.Kind == 'U' {
		n *= 4
	}
	return n, true
}
