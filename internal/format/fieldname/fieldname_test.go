package fieldname_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/internal/format/fieldname"
)

func TestFind(t *testing.T) {
	for name, want := range map[string]string{
		"jpg": "jpg", "caption": "caption.txt", "caption.txt": "caption.txt", "tag": "tag", "cap": "", "nothing": "", "": "",
		"x": "", "x.y": "x.y.npy", "emb": "the field \"emb\" may be emb.json or emb.npy",
	} {
		got, err := fieldname.Find(name, strings.Fields("jpg emb.npy caption.txt tag tag.json x.y.npy emb.json caption.txt"))
		if err != nil {
			got, _, _ = strings.Cut(err.Error(), ":")
		}
		if got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

// TestFindAll: a list is found by its name, with its elements in order, unless a field has the
// name.
func TestFindAll(t *testing.T) {
	t.Parallel()
	have := []string{"a.0.png", "a.1.jpg", "a.1.png", "a.10.png", "a.2.bin", "a.02.bin", "a.1000.png", "a.-1.png", "a.3", "a.4.", "a.5.tar.gz", "ab.0.png", "a.+6.png", "b.txt", "c", "c.0.png"}
	for _, c := range []struct {
		name string
		want []string
		list bool
	}{
		{"a", []string{"a.0.png", "a.1.jpg", "a.1.png", "a.2.bin", "a.10.png"}, true}, {"b", []string{"b.txt"}, false}, {"c", []string{"c"}, false},
		{"none", nil, true}, {"other", nil, false}, {"a.0", []string{"a.0.png"}, false},
	} {
		got, list, err := fieldname.FindAll(c.name, have, []string{"a", "c", "none"})
		if err != nil || list != c.list || !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, %t, %v", c.name, got, list, err)
		}
	}
	if _, _, err := fieldname.FindAll("a.1", have, nil); err == nil {
		t.Error("a.1 is not refused")
	}
}
