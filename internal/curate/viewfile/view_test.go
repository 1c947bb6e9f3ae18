package viewfile

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/names"
	"github.com/shardtool/shardtool/internal/testset/allocated"
)

// someViews are a subset and weights over several parts, and the least of each.
func someViews() map[string]*View {
	digest := format.Hash{1, 2, 3}
	rnd := rand.New(rand.NewPCG(1, 2))
	bits := make([]byte, (bitsPerPart+bitsPerPart/3+5+7)/8)
	for i := range bits {
		x := rnd.Uint32() // a quarter of the bits is set
		bits[i] = byte(x) & byte(x>>8)
	}
	few := make([]uint32, 2*weightsPerPart+77)
	many := make([]uint32, 5000)
	for i := range few {
		few[i] = []uint32{0, 7, 1 << 31}[rnd.IntN(3)]
	}
	for i := range many {
		many[i] = rnd.Uint32()
	}
	bits[len(bits)-1] &= 1<<5 - 1
	class, of := make([]uint32, weightsPerPart+weightsPerPart/2), make([]uint64, weightsPerPart+9)
	for i := range class {
		class[i] = uint32(min(i, len(of)-1)) + 1
	}
	for i := range of {
		of[i] = 1 + rnd.Uint64N(1<<40)
	}
	return map[string]*View{
		"subset":    {Digest: digest, Samples: 8*uint64(len(bits)-1) + 5, Chosen: bits},
		"one":       {Digest: digest, Samples: 1, Chosen: []byte{1}},
		"few":       {Digest: digest, Samples: uint64(len(few)), Weights: few, Draws: 9},
		"many":      {Digest: digest, Samples: uint64(len(many)), Weights: many, Draws: 1<<63 - 1},
		"classes":   {Digest: digest, Samples: 6, Weights: []uint32{0, 1, 2, 0, 1, 3}, Draws: 30, Classes: []uint64{1, 1 << 62, 1}},
		"parts":     {Digest: digest, Samples: uint64(len(class)), Weights: class, Draws: 5, Classes: of},
		"no sample": {Digest: digest, Chosen: []byte{}},
	}
}

func TestViewFile(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine: make test runs it without the race detector")
	}
	ids := map[string]bool{}
	for name, v := range someViews() {
		file, err := v.Encode()
		if err != nil {
			t.Fatal(name, err)
		}
		got, err := Decode(file, v.Digest, v.Samples)
		if err != nil || got.ID() != v.ID() || got.Draws != v.Draws || !bytes.Equal(got.Chosen, v.Chosen) || !reflect.DeepEqual(got.Weights, v.Weights) ||
			!reflect.DeepEqual(got.Classes, v.Classes) || got.Kind() != v.Kind() {
			t.Errorf("%s: %v, or another content", name, err)
		}
		if ids[v.ID()] || !names.IsView(names.View(v.ID())) || !names.IsViewID(v.ID()) {
			t.Errorf("%s: ID %s", name, v.ID())
		}
		ids[v.ID()] = true
		if _, err := Decode(file, format.Hash{9}, v.Samples); !errors.Is(err, format.ErrMismatch) {
			t.Errorf("%s: of other content it gives %v", name, err)
		}
		if _, err := Decode(file, v.Digest, v.Samples+1); !errors.Is(err, format.ErrMismatch) {
			t.Errorf("%s: of another number of samples it gives %v", name, err)
		}
		most := int(v.Samples/8) + 1000
		if !v.Subset() {
			most = 4*int(v.Samples) + 8*len(v.Classes) + 1000
		}
		if len(file) > most {
			t.Errorf("%s: %d bytes for %d samples", name, len(file), v.Samples)
		}
	}
}

// TestViewDamage: no byte of a view file can change unnoticed.
func TestViewDamage(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine: make test runs it without the race detector")
	}
	for _, name := range []string{"one", "many", "classes"} {
		v := someViews()[name]
		file, err := v.Encode()
		if err != nil {
			t.Fatal(err)
		}
		for i := range file {
			bad := bytes.Clone(file)
			bad[i] ^= 0x10
			if i == 10 || i == 11 { // the minor version
				continue
			}
			if _, err := Decode(bad, v.Digest, v.Samples); !errors.Is(err, format.ErrCorrupt) && !errors.Is(err, format.ErrVersion) {
				t.Fatalf("%s: byte %d changed: %v", name, i, err)
			}
		}
		for _, n := range []int{0, 7, 15, 40, len(file) - 1} {
			if _, err := Decode(file[:n], v.Digest, v.Samples); !errors.Is(err, format.ErrCorrupt) {
				t.Errorf("%s: cut to %d: %v", name, n, err)
			}
		}
		if _, err := Decode(append(bytes.Clone(file), 0), v.Digest, v.Samples); !errors.Is(err, format.ErrCorrupt) {
			t.Errorf("%s: with a byte more: %v", name, err)
		}
	}
}

// TestViewRefused is views that cannot be stored.
func TestViewRefused(t *testing.T) {
	for name, v := range map[string]*View{
		"bits past":    {Samples: 3, Chosen: []byte{8}},
		"too few bits": {Samples: 9, Chosen: []byte{1}},
		"both":         {Samples: 1, Chosen: []byte{1}, Weights: []uint32{1}, Draws: 1},
		"too few":      {Samples: 2, Weights: []uint32{1}, Draws: 1},
		"draws":        {Samples: 1, Weights: []uint32{1}, Draws: 1 << 63},
		"no class":     {Samples: 1, Weights: []uint32{1}, Draws: 1, Classes: []uint64{}},
		"not drawn":    {Samples: 1, Chosen: []byte{1}, Classes: []uint64{1}},
		"class past":   {Samples: 2, Weights: []uint32{1, 2}, Draws: 1, Classes: []uint64{1}},
		"class later":  {Samples: 2, Weights: []uint32{2, 1}, Draws: 1, Classes: []uint64{1, 1}},
		"empty class":  {Samples: 2, Weights: []uint32{1, 1}, Draws: 1, Classes: []uint64{1, 1}},
		"weight 0":     {Samples: 1, Weights: []uint32{1}, Draws: 1, Classes: []uint64{0}},
		"weights":      {Samples: 2, Weights: []uint32{1, 2}, Draws: 1, Classes: []uint64{1 << 62, 1 << 62}},
	} {
		if _, err := v.Encode(); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestViewLabel(t *testing.T) {
	l := Label{Format: LabelFormat, View: names.View("0123456789abcdef"), Kind: "subset", Made: map[string]string{"where": "a > 1"}}
	got, err := DecodeLabel(l.Encode())
	if err != nil || !reflect.DeepEqual(got, &l) {
		t.Errorf("%+v, %v", got, err)
	}
	for text, want := range map[string]error{
		`{"format":"shardtool-view/2","view":"view-0123456789abcdef.bin"}`: format.ErrVersion,
		`{"format":"shardtool-view/1","view":"../view.bin"}`:               format.ErrCorrupt,
		`{"format":"other"}`: format.ErrCorrupt,
		`[`:                  format.ErrCorrupt,
	} {
		if _, err := DecodeLabel([]byte(text)); !errors.Is(err, want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	for label, ok := range map[string]bool{
		"clean-v2": true, "A.b_9": true, "": false, ".x": false, "-x": false, "a/b": false, "0123456789abcdef": false, strings.Repeat("a", 65): false,
	} {
		if err := CheckLabel(label); (err == nil) != ok {
			t.Errorf("label %q: %v", label, err)
		}
		if back, is := names.ParseLabel(names.Label(label)); is != ok || ok && back != label {
			t.Errorf("label %q comes back as %q, %v", label, back, is)
		}
	}
}

// FuzzView: no bytes make the decoder of view files panic, hang, or ask for more than the data set
// and the bytes justify; what decodes is stored the same.
func FuzzView(f *testing.F) {
	for _, v := range []*View{
		{Samples: 20, Chosen: []byte{1, 2, 3}},
		{Samples: 20, Weights: make([]uint32, 20), Draws: 3},
		{Samples: 20, Weights: append(make([]uint32, 17), 1, 2, 1), Draws: 3, Classes: []uint64{7, 1 << 40}},
		{Samples: 20, Weights: []uint32{9, 8, 7, 1 << 31, 5, 4, 3, 2, 1, 0, 9, 8, 7, 6, 5, 4, 3, 2, 1, 70000}, Draws: 3},
	} {
		file, err := v.Encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(file)
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		var v *View
		var err error
		n := allocated.Bytes(func() { v, err = Decode(file, format.Hash{}, 20) })
		if limit := 1<<20 + 64*uint64(len(file)); n > limit {
			t.Fatalf("%d bytes allocated, limit %d", n, limit)
		}
		if err != nil {
			if !errors.Is(err, format.ErrCorrupt) && !errors.Is(err, format.ErrVersion) && !errors.Is(err, format.ErrTooLarge) && !errors.Is(err, format.ErrMismatch) {
				t.Fatalf("error %v", err)
			}
			return
		}
		again, err := v.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if back, err := Decode(again, format.Hash{}, 20); err != nil || back.ID() != v.ID() {
			t.Fatalf("it is stored as another one: %v", err)
		}
	})
}
