package lines

import (
	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/input/kinds"
	"github.com/shardtool/shardtool/writer/source/internal/rows"
)

// maxLearned bounds the names of fields whose kind is learned, because cursors contain them. Fields
// beyond it have no kind.
const maxLearned = 64 << 10

// wordOf is the kind of a field that has the value.
func wordOf(v *rows.Cell, ext extension) string {
	switch {
	case ext == extNumpy:
		return "npy"
	case ext >= extBytes:
		return "bytes"
	case ext == extJSON, v.Kind == rows.Bool:
		return "json"
	case v.Kind <= rows.Null || v.Kind == rows.Text: // a null is an empty field
		return "txt"
	}
	if v.Kind == rows.Number { // one of MDS may be nan
		return "float"
	}
	return numberWord(v.B)
}

// learned are the kinds of the fields of the rows up to the cursor.
type learned struct {
	kinds kinds.Kinds
	bytes int    // of names
	text  string // as JSON; empty if it has changed
}

func (l *learned) add(name, word string) {
	before, ok := l.kinds[name]
	switch {
	case !ok && l.bytes+len(name) > maxLearned:
		return
	case !ok && l.kinds == nil:
		l.kinds = kinds.Kinds{}
	case ok:
		if word = kinds.Wider(before, word); word == before {
			return
		}
	}
	if !ok {
		l.bytes += len(name)
	}
	l.kinds[name], l.text = word, ""
}

// String returns the kinds for a cursor.
func (l *learned) String() string {
	if l.text == "" && len(l.kinds) > 0 {
		l.text = l.kinds.Meta()[kinds.Key]
	}
	return l.text
}

// parse reads the kinds of a cursor.
func (l *learned) parse(text string) error {
	*l = learned{}
	if text == "" {
		return nil
	}
	k, err := kinds.Parse(format.Metadata{kinds.Key: text}, kinds.Key)
	for name, word := range k {
		l.add(name, word)
	}
	return err
}
