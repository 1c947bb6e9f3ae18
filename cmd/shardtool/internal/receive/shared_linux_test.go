package receive

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// parent is a parent's end of shared memory of two slots.
type parent struct {
	data  []byte
	freed *os.File
	begin *Begin
}

const slotSize = 4096

func share(t *testing.T) *parent {
	t.Helper()
	fd, err := unix.MemfdCreate("samples", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Ftruncate(fd, 2*slotSize); err != nil {
		t.Fatal(err)
	}
	data, err := unix.Mmap(fd, 0, 2*slotSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]int
	if err := unix.Pipe(ends[:]); err != nil {
		t.Fatal(err)
	}
	p := &parent{data: data, freed: os.NewFile(uintptr(ends[0]), "freed")}
	t.Cleanup(func() { p.freed.Close() })
	body, err := json.Marshal(Begin{Protocol: Protocol, Shared: &Memory{File: fd, Free: ends[1], Slots: 2, Size: slotSize}})
	if err != nil {
		t.Fatal(err)
	}
	if p.begin, err = ReadBegin(bytes.NewReader(frameOf(kindBegin, body))); err != nil {
		t.Fatal(err)
	}
	return p
}

func shared(slot, kind uint32, n uint64) []byte {
	return frameOf(kindShared, binary.LittleEndian.AppendUint64(words(slot, kind), n))
}

// put writes a body into a slot and returns its frame.
func (p *parent) put(slot, kind uint32, body []byte) []byte {
	copy(p.data[slot*slotSize:], body)
	return shared(slot, kind, uint64(len(body)))
}

// TestShared reads bodies from memory. A slot is freed once its samples have been taken, not
// before.
func TestShared(t *testing.T) {
	p := share(t)
	in, out := io.Pipe()
	s := New(p.begin, in, nil, func(Place) error { return nil })
	defer s.Close()
	sent := make(chan error, 1)
	go func() {
		samples := append(words(0, 1, 3, 1, 1, 1), "keyx11"...)
		head := `{"rows":1,"columns":[{"role":"field","name":"c","type":"npy","kind":"fixed","width":2}],"buffers":[1,2]}`
		_, err := out.Write(bytes.Join([][]byte{
			frameOf(kindLayout, []byte(aLayout)),
			p.put(1, kindSamples, samples),
			p.put(0, kindColumns, columnsOf(head, []byte("P"), []byte("aa"))),
		}, nil))
		if err == nil {
			var slot [1]byte
			if _, err = io.ReadFull(p.freed, slot[:]); err == nil && slot[0] == 1 {
				_, err = out.Write(append(p.put(1, kindSamples, append(words(0, 1, 1, 1, 1, 1), "zy21"...)), frameOf(kindEnd, nil)...))
			}
		}
		sent <- err
	}()
	for _, want := range []string{"x", "Paa", "y"} {
		sample, err := s.Next(t.Context())
		if err != nil || string(sample.Fields[0].Data) != want {
			t.Fatalf("%v, %v, want %q", sample, err, want)
		}
	}
	if _, err := s.Next(t.Context()); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	s.Close()
	if rest, err := io.ReadAll(p.freed); err != nil || !bytes.Equal(rest, []byte{0, 1}) {
		t.Errorf("freed %v at the end, %v; want slots 0 and 1", rest, err)
	}
}

// TestSharedRefused sends what no parent sends.
func TestSharedRefused(t *testing.T) {
	for name, f := range map[string][]byte{
		"slot":    shared(2, kindSamples, 10),
		"length":  shared(0, kindSamples, slotSize+1),
		"lengths": shared(1, kindSamples, 1<<63),
		"kind":    shared(0, kindEnd, 0),
		"head":    frameOf(kindShared, words(0)),
	} {
		p := share(t)
		if _, err := texts(t.Context(), New(p.begin, bytes.NewReader(f), nil, func(Place) error { return nil })); !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := texts(t.Context(), source(nil, shared(0, kindSamples, 10))); !errors.Is(err, ErrProtocol) {
		t.Errorf("no memory: %v", err)
	}
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, m := range []Memory{{File: int(f.Fd()), Slots: 1, Size: 10}, {File: int(f.Fd())}, {File: int(f.Fd()), Slots: 1, Size: 1 << 40}, {File: 1 << 20, Slots: 1, Size: 1}} {
		if err := m.open(); !errors.Is(err, ErrProtocol) {
			t.Errorf("%+v: %v", m, err)
		}
	}
}
