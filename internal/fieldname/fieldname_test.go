package fieldname_test

import (
	"strings"
	"testing"

	"github.com/shardtool/shardtool/internal/fieldname"
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
