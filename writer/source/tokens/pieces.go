package tokens

import (
	"strconv"
	"unicode/utf8"
)

// MapField is the field that lists the documents of a sample's tokens, column by column, as
// attention over documents of different lengths needs them:
//
//	{"document":["a","b"],"offset":[1536,0],"start":[0,512],"length":[512,1536]}
//
// document is the key of a document in the source, offset the number of the first token in the
// document, start its number in the sample, and length is in tokens. Pieces follow each other
// without a gap; only padding may follow the last one. A separator belongs to the document before
// it, so offset and length may extend beyond the document's own tokens.
const MapField = "documents.json"

// piece is a part of a document in a sample, as described at MapField.
type piece struct {
	Document      string
	Offset, Start int64
	Length        int64
}

// appendPieces appends documents.json. Bytes of a key that are not UTF-8 become U+FFFD.
func appendPieces(dst []byte, pieces []piece) []byte {
	dst = append(dst, `{"document":[`...)
	for i := range pieces {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendText(dst, pieces[i].Document)
	}
	column := func(name string, value func(*piece) int64) {
		dst = append(dst, `],"`+name+`":[`...)
		for i := range pieces {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = strconv.AppendInt(dst, value(&pieces[i]), 10)
		}
	}
	column("offset", func(p *piece) int64 { return p.Offset })
	column("start", func(p *piece) int64 { return p.Start })
	column("length", func(p *piece) int64 { return p.Length })
	return append(dst, "]}"...)
}

// appendText appends a JSON string.
func appendText(dst []byte, text string) []byte {
	dst = append(dst, '"')
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRuneInString(text[i:])
		switch {
		case r == '"' || r == '\\':
			dst = append(dst, '\\', byte(r))
		case r < ' ':
			dst = append(dst, `\u00`...)
			dst = append(dst, "0123456789abcdef"[r>>4], "0123456789abcdef"[r&15])
		default:
			dst = utf8.AppendRune(dst, r)
		}
		i += n
	}
	return append(dst, '"')
}
