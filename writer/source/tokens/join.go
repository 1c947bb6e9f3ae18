package tokens

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/npy"
	"github.com/shardtool/shardtool/internal/input/kinds"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source/internal/fields"
)

// joinSource concatenates the documents of a source and cuts them into samples.
type joinSource struct {
	ahead ahead
	opt   JoinOptions
	sum   format.Hash
	// array is the reader of array documents, header the last header in memory, and known its
	// bytes.
	array  arrayReader
	header npy.Header
	known  []byte

	doc    *document // current document; nil between documents
	head   []byte    // header of a full sample
	buf    []byte    // the current sample, header first
	filled int64     // tokens in it
	pieces []piece
	begin  place // where it begins
	mapped []byte
	failed error
}

// place is a token of a document.
type place struct {
	mark  // before the document
	token int64
}

var _ writer.Splitter = (*joinSource)(nil)

// NewJoin concatenates the documents of src and cuts them into samples. It owns src: the caller
// must close the result, which closes src. The result can be split if src is a writer.Splitter. A
// sample is valid until the next call of Next. Errors wrap writer.ErrOptions.
//
// A sample has the fields tokens.npy and documents.json. Its key is the key of the document in
// which it begins, a slash, and the number of its first token in that document in nine digits:
// train/000000017/000001536.
//
// The error of a document that cannot be read, or has an id that does not fit, is found before its
// first token is used. It is a *writer.SampleError, and skipping it skips the whole document.
func NewJoin(src writer.Source, opt JoinOptions) (writer.Splitter, error) {
	opt, err := opt.filled()
	if err != nil {
		return nil, err
	}
	separator, err := json.Marshal(opt.Separator)
	if err != nil {
		return nil, err
	}
	from, err := json.Marshal(opt.From)
	if err != nil {
		return nil, err
	}
	options := fmt.Sprintf(`{"Length":%d,"Separator":%s,"From":%s,"DType":%d,"Remainder":%d,"PadID":%d,"NoMap":false}`,
		opt.Length, separator, from, opt.DType, opt.Remainder, opt.PadID)
	j := &joinSource{ahead: ahead{src: src, from: opt.From, small: smallDocument}, opt: opt}
	j.sum = sha256.Sum256(fmt.Appendf(nil, "join %s\n%s", options, src.Fingerprint()))
	j.head = npy.AppendHeader(nil, opt.DType.descr(), opt.Length)
	return j, nil
}

// Next implements writer.Source.
func (j *joinSource) Next(ctx context.Context) (writer.Sample, error) {
	if j.failed != nil {
		return writer.Sample{}, j.failed
	}
	if err := ctx.Err(); err != nil {
		return writer.Sample{}, err
	}
	if j.filled == j.opt.Length {
		j.restart()
	}
	for j.filled < j.opt.Length {
		if j.doc == nil {
			err := j.nextDocument(ctx)
			if errors.Is(err, io.EOF) {
				return j.last()
			}
			if err != nil {
				return writer.Sample{}, err
			}
			continue
		}
		if err := j.take(min(j.opt.Length-j.filled, j.doc.tokens-j.doc.at)); err != nil {
			// Tokens of this document have been returned, so it can no longer be skipped.
			j.failed = fmt.Errorf("document %q, at token %d of %d: %w", j.doc.key, j.doc.at, j.doc.tokens, err)
			return writer.Sample{}, j.failed
		}
	}
	return j.sample(), nil
}

// restart starts a new sample.
func (j *joinSource) restart() { j.buf, j.filled, j.pieces = j.buf[:0], 0, j.pieces[:0] }

// nextDocument opens the next document. It closes one without tokens.
func (j *joinSource) nextDocument(ctx context.Context) error {
	u, err := j.ahead.next(ctx)
	if err != nil {
		return err
	}
	if u.err != nil {
		return u.err
	}
	d, err := j.openDocument(ctx, u)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		s := &u.sample
		return &writer.SampleError{Origin: s.Origin, Key: s.Key, Source: s.Source, Row: s.Row, Err: err}
	}
	if j.doc = d; d.tokens == 0 {
		j.closeDocument()
	}
	return nil
}

func (j *joinSource) closeDocument() {
	if j.doc != nil {
		j.doc.reader.close()
		j.doc = nil
	}
}

// take appends the document's next n tokens to the sample.
func (j *joinSource) take(n int64) (err error) {
	d := j.doc
	if j.filled == 0 {
		j.begin = place{d.before, d.at}
		j.buf = append(j.buf[:0], j.head...)
	}
	ids := d.tokens - int64(len(j.opt.Separator)) - d.at // tokens before the separator
	if some := min(n, ids); some > 0 {
		if j.buf, err = d.reader.append(j.buf, some); err != nil {
			return err
		}
	}
	for i := max(0, -ids); i < n-ids; i++ {
		j.buf = j.opt.DType.append(j.buf, j.opt.Separator[i])
	}
	j.pieces = append(j.pieces, piece{Document: d.key, Offset: d.at, Start: j.filled, Length: n})
	d.at, j.filled = d.at+n, j.filled+n
	if d.at == d.tokens {
		j.closeDocument()
	}
	return nil
}

// last returns the remainder at the end of the source.
func (j *joinSource) last() (writer.Sample, error) {
	switch {
	case j.filled == 0:
		return writer.Sample{}, io.EOF
	case j.opt.Remainder == Drop:
		if j.opt.Dropped != nil {
			j.opt.Dropped(j.filled)
		}
		j.restart()
		return writer.Sample{}, io.EOF
	}
	n := j.filled
	if j.opt.Remainder == Pad {
		for ; j.filled < j.opt.Length; j.filled++ {
			j.buf = j.opt.DType.append(j.buf, j.opt.PadID)
		}
		s := j.sample()
		s.Attrs = []format.AttrValue{realTokens(n)}
		return s, nil
	}
	ids := append([]byte{}, j.buf[len(j.head):]...)
	j.buf = append(npy.AppendHeader(j.buf[:0], j.opt.DType.descr(), n), ids...)
	s := j.sample()
	j.filled = j.opt.Length // the end: the sample has been returned
	return s, nil
}

// sample returns the current sample.
func (j *joinSource) sample() writer.Sample {
	first := &j.pieces[0]
	j.mapped = appendPieces(j.mapped[:0], j.pieces)
	return writer.Sample{
		Key:    fields.RowKey(first.Document, first.Offset),
		Origin: "tokens from " + strconv.FormatInt(first.Offset, 10) + " of document " + first.Document + " on",
		Fields: []writer.Field{{Name: MapField, Data: j.mapped}, {Name: Field, Data: j.buf}},
	}
}

// place is where the next sample begins.
func (j *joinSource) place() place {
	switch {
	case j.filled > 0 && j.filled < j.opt.Length: // a document was refused; the sample begins where it began
		return j.begin
	case j.doc != nil:
		return place{j.doc.before, j.doc.at}
	}
	return place{mark: j.ahead.mark()}
}

// LeftOut counts the documents that the source left out, see writer.LeftOut.
func (j *joinSource) LeftOut() (before, behind writer.RowsLeft) {
	all, behind := writer.LeftOut(j.ahead.src)
	before = j.place().left
	return before, behind.Plus(all.Minus(before))
}

// Cursor returns the number of a token in a document, a colon, and the source's cursor before that
// document.
func (j *joinSource) Cursor() string {
	at := j.place()
	return strconv.FormatInt(at.token, 10) + ":" + at.cursor
}

// Seek moves to a cursor. It reads the earlier tokens of the document.
func (j *joinSource) Seek(ctx context.Context, cursor string) error {
	number, inner, ok := strings.Cut(cursor, ":")
	token, err := strconv.ParseInt(number, 10, 64)
	if !ok || err != nil || token < 0 {
		return fmt.Errorf("cursor %q is not a place in documents", cursor)
	}
	j.closeDocument()
	j.restart()
	j.ahead.reset()
	j.failed = nil
	if err := j.ahead.src.Seek(ctx, inner); err != nil {
		return err
	}
	if token == 0 {
		return nil
	}
	if err := j.nextDocument(ctx); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return fmt.Errorf("cursor %q: its document can no longer be read: %w", cursor, err)
	}
	if j.doc == nil || token >= j.doc.tokens {
		j.closeDocument()
		return fmt.Errorf("cursor %q: its document has too few tokens: it has changed", cursor)
	}
	return j.skip(token)
}

// skip reads over tokens.
func (j *joinSource) skip(n int64) error {
	d := j.doc
	done, err := readOver(d.reader, min(n, d.tokens-int64(len(j.opt.Separator))))
	if err != nil {
		return fmt.Errorf("document %q, at token %d: %w", d.key, done, err)
	}
	d.at = n
	return nil
}

// Split splits the source, which must be a writer.Splitter. Each part has separate documents and a
// separate remainder.
func (j *joinSource) Split(part, parts int) error {
	s, ok := j.ahead.src.(writer.Splitter)
	if !ok {
		return errors.New("the source of documents cannot be divided into parts")
	}
	j.closeDocument()
	j.restart()
	j.ahead.reset()
	return s.Split(part, parts)
}

// Fingerprint covers the options and the source's fingerprint.
func (j *joinSource) Fingerprint() string { return "documents:" + j.sum.String() }

// Meta states that the tokens are an array, and their documents JSON.
func (j *joinSource) Meta() format.Metadata {
	return kinds.Kinds{Field: "npy", MapField: "json"}.Meta()
}

// Total is known if the source is an *Arrays, else it returns 0.
func (j *joinSource) Total() (samples, bytes int64) {
	of, ok := j.ahead.src.(*Arrays)
	if !ok {
		return 0, 0
	}
	documents, _ := of.Total()
	tokens, _ := of.Splitter.(*arraySource).count()
	tokens += documents * int64(len(j.opt.Separator))
	if samples = tokens / j.opt.Length; tokens%j.opt.Length > 0 && j.opt.Remainder != Drop {
		samples++
	}
	return samples, tokens*j.opt.DType.size() + samples*int64(len(j.head))
}

// Close closes the source.
func (j *joinSource) Close() error {
	j.closeDocument()
	j.ahead.reset()
	return j.ahead.src.Close()
}

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
