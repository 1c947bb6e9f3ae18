package tokens

import (
	"strconv"
	"unicode/utf8"
)

// MapField is the field that says which documents a sample's tokens are of.
const MapField = "documents.json"

// piece is a part of a document in a sample. The pieces of a sample follow each other without a gap; behind the last there is
// padding at most. A separator belongs to the document before it.
//
// In documents.json they stand column by column, as attention over documents of different lengths wants them:
//
//	{"document":["a","b"],"offset":[1536,0],"start":[0,512],"length":[512,1536]}
type piece struct {
	// Document is its key in the source.
	Document string
	// Offset is the number of the piece's first token in the document, and Start its number in the sample.
	Offset, Start int64
	// Length is in tokens. Where Offset and Length reach beyond the document's own tokens, those are the separator.
	Length int64
}

// appendPieces appends documents.json. Of a key that is no UTF-8, other bytes become U+FFFD.
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
