package writer_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/writer"
)

// TestRemoveAndParts: a commit that is repeated after a removal still finds its generation, and
// parts that were packed before a removal do not pass for committed ones.
func TestRemoveAndParts(t *testing.T) {
	opt := small("d")
	st := partsOf(t, partsSource, opt, 2, 0, 1)
	first := mustCommit(t, st, writer.CommitOptions{Parts: 2})
	removed, err := writer.Remove(t.Context(), st, first.Tables, []uint64{3})
	if err != nil || removed.Generation != 2 || removed.Digest != first.Digest {
		t.Fatalf("%+v, %v", removed, err)
	}
	again := mustCommit(t, st, writer.CommitOptions{Parts: 2})
	if !again.Already || again.Tables != removed.Tables || !missing(t, st, 2).Published {
		t.Errorf("%+v", again)
	}

	more := func() *synth {
		s := partsSource()
		s.tag = "more"
		for i := range s.items {
			s.items[i].key = "more" + s.items[i].key
		}
		return s
	}
	opt.Mode = writer.ModeAppend
	for part := range 2 {
		mustPart(t, st, more(), part, 2, opt)
	}
	if _, err := writer.Remove(t.Context(), st, "", []uint64{4}); err != nil {
		t.Fatal(err)
	}
	if r := missing(t, st, 2); r.Published || len(r.Missing) != 2 {
		t.Errorf("%+v", r)
	}
	_, err = writer.Commit(t.Context(), st, writer.CommitOptions{Parts: 2, Name: "d"})
	if !errors.Is(err, writer.ErrMissing) || !strings.Contains(err.Error(), "do not follow") {
		t.Error(err)
	}
	for part := range 2 { // as the error says
		mustPart(t, st, more(), part, 2, opt)
	}
	res := mustCommit(t, st, writer.CommitOptions{Parts: 2})
	if res.Generation != 4 || res.Samples != 2*first.Samples {
		t.Errorf("%+v", res)
	}
}
