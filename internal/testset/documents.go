package testset

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
)

// Npy returns an .npy file with one dimension.
func Npy(descr string, values int, data []byte) []byte {
	dict := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%d,), }", descr, values)
	dict += strings.Repeat(" ", 63-(10+len(dict))%64) + "\n"
	out := append([]byte("\x93NUMPY\x01\x00"), byte(len(dict)), byte(len(dict)>>8))
	return append(append(out, dict...), data...)
}

// Token returns the value of a token of Documents, which no other token of them has.
func Token(sample, at int) uint32 { return uint32(sample*1000 + at) }

// Documents returns samples with tokens, ids.npy of u4 and labels.npy of u2 that count down, and
// their lengths by key.
func Documents(n int) (samples []Sample, lengths map[string]int) {
	r := rand.New(rand.NewPCG(1, 2))
	lengths = map[string]int{}
	for i := range n {
		length := 1 + int(r.ExpFloat64()*40)
		var ids, labels []byte
		for k := range length {
			ids = binary.LittleEndian.AppendUint32(ids, Token(i, k))
			labels = binary.LittleEndian.AppendUint16(labels, uint16(length-k))
		}
		key := fmt.Sprintf("d%04d", i)
		lengths[key] = length
		samples = append(samples, Sample{Key: key, Fields: []Field{
			{Name: "ids.npy", Data: Npy("<u4", length, ids)}, {Name: "labels.npy", Data: Npy("<u2", length, labels)},
		}})
	}
	return samples, lengths
}
