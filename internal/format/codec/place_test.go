package codec

import "testing"

// TestPlace makes as many decoders as fill several spans of the heap: none has its state across the
// end of a page.
func TestPlace(t *testing.T) {
	for i := range 100 {
		d := NewDecoder(false)
		t.Cleanup(d.Close)
		at, size := statePlace(d.z)
		if at == 0 || size == 0 {
			t.Fatal("the library keeps its state elsewhere: statePlace must follow, if its loop still stores 16 bytes at once")
		}
		if crossesPage(at, size) {
			t.Errorf("decoder %d: %d bytes at %#x cross the end of a page", i, size, at)
		}
	}
}
