package kinds

import (
	"testing"

	"github.com/shardtool/shardtool/format"
)

func TestKinds(t *testing.T) {
	t.Parallel()
	k := Kinds{".npy": "npy", "a.npy": "json"}
	for field, want := range map[string]string{"npy": "npy", "x.npy": "npy", "a.npy": "json", "x": "", "": "", "npy.x": ""} {
		if got := k.Of(field); got != want {
			t.Errorf("%q: %q, want %q", field, got, want)
		}
	}
	for _, c := range [][3]string{{"int", "int", "int"}, {"int", "float", "float"}, {"txt", "int", "txt"}, {"json", "float", "json"}, {"npy", "txt", "bytes"}, {"bytes", "int", "bytes"}} {
		if Wider(c[0], c[1]) != c[2] || Wider(c[1], c[0]) != c[2] {
			t.Error(c)
		}
	}
	back, err := Parse(k.Meta(), Key)
	if err != nil || len(back) != 2 || back["a.npy"] != "json" {
		t.Error(back, err)
	}
	if back, err := Parse(format.Metadata{}, Key); back != nil || err != nil {
		t.Error(back, err)
	}
	if _, err := Parse(format.Metadata{Key: "["}, Key); err == nil {
		t.Error("a list was taken")
	}
}
