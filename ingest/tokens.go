package ingest

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/shardtool/shardtool/hint"
	"github.com/shardtool/shardtool/internal/input/recognise"
	"github.com/shardtool/shardtool/internal/sys/plain"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
	"github.com/shardtool/shardtool/writer/source/tokens"
)

// whole reports whether a folder of arrays is a source of tokens. Without a length it is usually a
// folder of samples, and with a separator each file is a document.
func (t *Tokens) whole() bool { return t.Length > 0 && (!t.Join || t.Raw != 0) }

// joins reports whether documents are joined.
func (t *Tokens) joins(k *kind) bool { return t.Length > 0 && (!k.tokens || t.Join) }

// tokensKind is arrays of token ids.
var tokensKind = kind{
	of:      recognise.Tokens,
	tokens:  true,
	instead: map[string]string{"pack-shuffle": "reading shuffles", "": "arrays have token ids and nothing else"},
	open:    openArrays,
}

// megatronKind is indexed datasets of Megatron, whose documents are samples.
var megatronKind = kind{
	of:      recognise.Megatron,
	tokens:  true,
	instead: tokensKind.instead,
	open:    openArrays,
}

// arraysKind is arrays of any type, whose rows are samples.
var arraysKind = kind{
	of:      recognise.Arrays,
	options: []string{"columns", "rename"},
	instead: map[string]string{"": "arrays have numbers and nothing else"},
	open:    openArrayRows,
}

// openArrayRows opens arrays of any type.
func openArrayRows(ctx context.Context, f *Found) (writer.Source, int64, error) {
	src, err := tokens.NewArrays(ctx, f.files, tokens.Options{Rows: true, Columns: f.Rows.Columns,
		Rename: f.Rows.Rename})
	if err != nil {
		return nil, 0, err
	}
	f.even = true
	f.known("%s of arrays in %s", plain.Plural(src.Samples, "row"), plain.Plural(len(f.files), "file"))
	return opened(src, src.Samples, plain.Plural(len(f.files), "array"))
}

func openArrays(ctx context.Context, f *Found) (writer.Source, int64, error) {
	t := &f.Tokens
	opt := tokens.Options{Length: t.Length, Remainder: t.Remainder, PadID: t.PadID, DType: t.DType, Raw: t.Raw}
	if f.Tokens.Field != "" {
		return nil, 0, wrongf("%s is for documents with several fields: source %s is %s", f.opt("tokens-field"),
			f.srcs[0], f.kind.of.One)
	}
	if t.joins(f.kind) {
		opt = tokens.Options{Raw: opt.Raw, Mixed: true} // each array, or each row of one, is a document
	}
	raw := func(in source.Input) bool {
		return !slices.Contains([]string{".npy", ".npz", ".idx"}, filepath.Ext(in.Path))
	}
	if t.Raw != 0 && !slices.ContainsFunc(f.files, raw) {
		return nil, 0, wrongf("%s is for token ids in files without a header, and those of source %s say their type: %s stores another", f.opt("raw-dtype"), f.srcs[0], f.opt("token-dtype"))
	}
	src, err := tokens.NewArrays(ctx, f.files, opt)
	if err != nil {
		return nil, 0, err
	}
	if f.Tokens.Length == 0 && src.Whole != "" {
		src.Close()
		return nil, 0, wrongf("source %s is one row of tokens: say how long samples are with %s, such as %s 2048",
			src.Whole, f.opt("pack-tokens"), f.opt("pack-tokens"))
	}
	text := fmt.Sprintf("%s of %v in %s", plain.Plural(src.Tokens, "token"), src.DType,
		plain.Plural(len(f.files), "array"))
	if opt.Length > 0 {
		text += fmt.Sprintf(": %s of %s", plain.Plural(src.Samples, "sample"), plain.Plural(opt.Length, "token"))
		switch {
		case src.Dropped > 0:
			text += fmt.Sprintf("; %s at the ends are dropped", plain.Plural(src.Dropped, "token"))
		case src.Short > 0 && opt.Remainder == tokens.Pad:
			text += fmt.Sprintf(", %s padded", plain.Count(uint64(src.Short)))
		case src.Short > 0:
			text += fmt.Sprintf(", %s shorter (%s pads or drops them, %s joins arrays as documents)",
				plain.Count(uint64(src.Short)), f.opt("pack-remainder"), f.opt("separator"))
		}
	}
	f.known("%s", text)
	return opened(src, src.Tokens, plain.Plural(len(f.files), "array"))
}

// open opens the source, and joins its documents if the options ask for it. size is the total of
// the progress, 0 when it is not known.
func (f *Found) open(ctx context.Context) (src writer.Source, size int64, err error) {
	t := &f.Tokens
	if t.Raw != 0 && !f.kind.tokens {
		return nil, 0, wrongf("%s is for .bin files of token ids: source %s is %s", f.opt("raw-dtype"), f.srcs[0],
			f.kind.of.One)
	}
	if !t.joins(f.kind) {
		if t.DType != 0 && !f.kind.tokens {
			return nil, 0, wrongf("%s goes with %s: source %s is %s", f.opt("token-dtype"), f.opt("pack-tokens"),
				f.srcs[0], f.kind.of.One)
		}
		return f.openRows(ctx)
	}
	switch {
	case !t.Join:
		return nil, 0, wrongf("%s joins documents, since source %s is %s%s: give the id that follows each with %s ID, or %s none where they end with such an id already", f.opt("pack-tokens"), f.srcs[0], f.kind.of.One, f.why, f.opt("separator"), f.opt("separator"))
	case len(f.Rows.Files) > 0:
		return nil, 0, wrongf("%s adds files to rows, and %s joins rows to samples: leave one of them out",
			f.opt("file-column"), f.opt("pack-tokens"))
	case len(f.Rows.Attrs) > 0 || f.ClassField != "":
		return nil, 0, wrongf("%s and %s describe documents, of which a sample of %s holds several: leave them out, except %s tokens=len(%s)", f.opt("attr"), f.opt("class-field"), f.opt("pack-tokens"), f.opt("attr"), tokens.Field)
	}
	f.chooseColumn()
	src, _, err = f.kind.open(ctx, f)
	if err != nil {
		if bad, ok := errors.AsType[*hint.OptionError](err); ok && f.narrowed && bad.Option == "columns" {
			err = wrongf("%s", bad.Text(f.opt("tokens-field")))
		}
		return nil, 0, err
	}
	j, err := tokens.NewJoin(src, tokens.JoinOptions{
		Length: t.Length, Separator: t.Separator, From: t.Field, DType: t.DType, Remainder: t.Remainder, PadID: t.PadID,
		Dropped: func(n int64) { f.dropped += n },
	})
	if err != nil {
		src.Close()
		return nil, 0, err
	}
	_, size = j.Total()
	return j, size, nil
}

// chooseColumn limits the columns that are read to the column of the tokens.
func (f *Found) chooseColumn() {
	rows := f.kind != &datasetKind && slices.Contains(f.kind.options, "columns")
	if field, r := f.Tokens.Field, &f.Rows; rows && field != "" && !strings.Contains(field, ".") && r.Columns == nil &&
		r.Rename == nil {
		r.Columns, f.narrowed = []string{field}, true
	}
}
