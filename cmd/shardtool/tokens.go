package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/hint"
	"github.com/shardtool/shardtool/internal/recognise"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source/tokens"
)

// tokenFlags determine how token ids become samples.
type tokenFlags struct {
	length    int64
	separator string
	field     string
	dtype     string
	raw       string
	remainder string
	pad       int64

	arrays tokens.Options
	join   tokens.JoinOptions
	// narrowed reports that only the column of tokens is read.
	narrowed bool
	dropped  int64 // tokens at the end of the documents
}

// tokenOnly are flags that need --pack-tokens.
var tokenOnly = []string{"separator", "tokens-field", "pack-remainder", "pad-id"}

func (f *tokenFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.Int64Var(&f.length, "pack-tokens", 0, "tokens: make samples of this many token ids, from arrays or documents")
	fl.StringVar(&f.separator, "separator", "", "tokens: join documents, with this id (or a,b) after each, or none")
	fl.StringVar(&f.field, "tokens-field", "", "tokens: the field or column with the ids of a document")
	fl.StringVar(&f.dtype, "token-dtype", "", "tokens: type of ids in samples, uint8 to int64 (default: the type of the arrays, int32 for documents)")
	fl.StringVar(&f.remainder, "pack-remainder", "keep", "tokens: a remainder shorter than a sample: keep it as a shorter sample, pad or drop")
	fl.Int64Var(&f.pad, "pad-id", 0, "tokens: the id that --pack-remainder pad pads with (default: the separator)")
	fl.StringVar(&f.raw, "raw-dtype", "", "tokens: type of ids in .bin files without a header")
	titled(cmd, "Token ids")
}

// whole reports whether a folder of arrays is a source of tokens. Without a length it is usually a
// folder of samples, and with a separator each file is a document.
func (f *tokenFlags) whole() bool { return f.length > 0 && (f.separator == "" || f.raw != "") }

// joins reports whether documents are joined.
func (f *tokenFlags) joins(k *kind) bool { return f.length > 0 && (!k.tokens || f.separator != "") }

// options parses the flags and checks them against each other.
func (f *tokenFlags) options(cmd *cobra.Command) error {
	given := cmd.Flags().Changed
	if given("pack-tokens") && f.length < 1 {
		return usagef("--pack-tokens %d: give the number of tokens of a sample, such as 2048", f.length)
	}
	for _, flag := range tokenOnly {
		if given(flag) && f.length == 0 {
			return usagef("--%s goes with --pack-tokens: it sets the number of tokens of a sample", flag)
		}
	}
	dtype := func(flag, name string) (tokens.DType, error) {
		if !given(flag) {
			return 0, nil
		}
		t, err := tokens.ParseDType(name)
		if err != nil {
			return 0, usagef("--%s: %w", flag, err)
		}
		return t, nil
	}
	to, err := dtype("token-dtype", f.dtype)
	if err != nil {
		return err
	}
	raw, err := dtype("raw-dtype", f.raw)
	if err != nil {
		return err
	}
	rest, err := tokens.ParseRemainder(f.remainder)
	if err != nil {
		return usagef("--pack-%w", err)
	}
	separator, err := parseSeparator(f.separator)
	if err != nil {
		return usagef("--separator %w", err)
	}
	switch {
	case given("pad-id") && rest != tokens.Pad:
		return usagef("--pad-id goes with --pack-remainder pad")
	case rest == tokens.Pad && !given("pad-id") && len(separator) == 0:
		return usagef("--pack-remainder pad: give the id to pad with, --pad-id")
	case rest == tokens.Pad && !given("pad-id"):
		f.pad = separator[len(separator)-1]
	}
	f.arrays = tokens.Options{Length: f.length, Remainder: rest, PadID: f.pad, DType: to, Raw: raw}
	f.join = tokens.JoinOptions{Length: f.length, Separator: separator, From: f.field, DType: to, Remainder: rest, PadID: f.pad,
		Dropped: func(n int64) { f.dropped += n }}
	return nil
}

// provenance records the options in the metadata of the data set.
func (f *tokenFlags) provenance(cmd *cobra.Command, to map[string]string) {
	for _, flag := range []string{"pack-tokens", "separator", "tokens-field", "token-dtype", "pack-remainder", "pad-id", "raw-dtype"} {
		if fl := cmd.Flags().Lookup(flag); fl.Changed {
			to[strings.ReplaceAll(flag, "-", "_")] = fl.Value.String()
		}
	}
}

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
	flags:   []string{"columns", "rename"},
	instead: map[string]string{"": "arrays have numbers and nothing else"},
	open:    openArrayRows,
}

// openArrayRows opens arrays of any type.
func openArrayRows(ctx context.Context, found *found, f *packFlags, stderr io.Writer) (writer.Source, int64, error) {
	src, err := tokens.NewArrays(ctx, found.files, tokens.Options{Rows: true, Columns: f.rows.columns, Rename: f.rows.renamed})
	if err != nil {
		return nil, 0, optionError(err)
	}
	f.evenLayout(true)
	f.known(stderr, "%s of arrays in %s", plural(src.Samples, "row"), plural(len(found.files), "file"))
	return opened(src, src.Samples, plural(len(found.files), "array"))
}

func openArrays(ctx context.Context, found *found, f *packFlags, stderr io.Writer) (writer.Source, int64, error) {
	opt := f.tokens.arrays
	if f.tokens.field != "" {
		return nil, 0, usagef("--tokens-field is for documents with several fields: source %s is %s", found.first(), found.kind.of.One)
	}
	if f.tokens.joins(found.kind) {
		opt = tokens.Options{Raw: opt.Raw, Mixed: true} // each array, or each row of one, is a document
	}
	src, err := tokens.NewArrays(ctx, found.files, opt)
	if err != nil {
		return nil, 0, optionError(err)
	}
	if f.tokens.length == 0 && src.Whole != "" {
		src.Close()
		return nil, 0, usagef("source %s is one row of tokens: say how long samples are with --pack-tokens, such as --pack-tokens 2048", src.Whole)
	}
	text := fmt.Sprintf("%s of %v in %s", plural(src.Tokens, "token"), src.DType, plural(len(found.files), "array"))
	if opt.Length > 0 {
		text += fmt.Sprintf(": %s of %s", plural(src.Samples, "sample"), plural(opt.Length, "token"))
		switch {
		case src.Dropped > 0:
			text += fmt.Sprintf("; %s at the ends are dropped", plural(src.Dropped, "token"))
		case src.Short > 0 && opt.Remainder == tokens.Pad:
			text += fmt.Sprintf(", %s padded", countText(uint64(src.Short)))
		case src.Short > 0:
			text += fmt.Sprintf(", %s shorter (--pack-remainder pads or drops them, --separator joins arrays as documents)", countText(uint64(src.Short)))
		}
	}
	f.known(stderr, "%s", text)
	return opened(src, src.Tokens, plural(len(found.files), "array"))
}

// open opens the source, and joins its documents if the flags ask for it. size is the total of the
// progress, 0 when it is not known.
func (all *found) open(ctx context.Context, f *packFlags, stderr io.Writer) (src writer.Source, size int64, err error) {
	t := &f.tokens
	if t.raw != "" && !all.kind.tokens {
		return nil, 0, usagef("--raw-dtype is for .bin files of token ids: source %s is %s", all.first(), all.kind.of.One)
	}
	if !t.joins(all.kind) {
		if f.tokens.dtype != "" && !all.kind.tokens {
			return nil, 0, usagef("--token-dtype goes with --pack-tokens: source %s is %s", all.first(), all.kind.of.One)
		}
		return all.openRows(ctx, f, stderr)
	}
	switch {
	case t.separator == "":
		return nil, 0, usagef("--pack-tokens joins documents, since source %s is %s%s: give the id that follows each with --separator ID, or "+
			"--separator none where they end with such an id already", all.first(), all.kind.of.One, all.why)
	case len(f.rows.files.given) > 0:
		return nil, 0, usagef("--file-column adds files to rows, and --pack-tokens joins rows to samples: leave one of them out")
	case len(f.rows.attributes) > 0 || f.files.ClassField != "":
		return nil, 0, usagef("--attr and --class-field describe documents, of which a sample of --pack-tokens holds several: leave them out, except --attr tokens=len(%s)",
			tokens.Field)
	}
	t.chooseColumn(f, all.kind)
	src, _, err = all.kind.open(ctx, all, f, stderr)
	if err != nil {
		if bad, ok := errors.AsType[*hint.OptionError](err); ok && t.narrowed && bad.Option == "columns" {
			err = usagef("%s", bad.Text(flagOf("from")))
		}
		return nil, 0, err
	}
	j, err := tokens.NewJoin(src, t.join)
	if err != nil {
		src.Close()
		return nil, 0, optionError(err)
	}
	_, size = j.Total()
	return j, size, nil
}

// first is the first source for messages, without the options of an address, which may be secret.
func (all *found) first() string {
	if place, _, _ := strings.Cut(all.srcs[0], "?"); strings.Contains(place, "://") {
		return place
	}
	return all.srcs[0]
}

// chooseColumn limits the columns that are read to the column of the tokens.
func (f *tokenFlags) chooseColumn(of *packFlags, k *kind) {
	rows := k != &datasetKind && slices.Contains(k.flags, "columns")
	if r := &of.rows; rows && f.field != "" && !strings.Contains(f.field, ".") && r.columns == nil && r.renamed == nil {
		r.columns, f.narrowed = []string{f.field}, true
	}
}

// printDropped prints how many tokens were dropped at the end.
func (f *packFlags) printDropped(stderr io.Writer) {
	if n := f.tokens.dropped; n > 0 && !f.quiet {
		fmt.Fprintf(stderr, "%s after the last whole sample were dropped\n", plural(n, "token"))
	}
}

// parseSeparator parses the ids that follow each document: "50256", several as "1,2", or "none",
// which like an empty text means that nothing follows.
func parseSeparator(text string) (ids []int64, err error) {
	if text == "" || text == "none" {
		return nil, nil
	}
	for word := range strings.SplitSeq(text, ",") {
		id, err := strconv.ParseInt(strings.TrimSpace(word), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%q: give a token id, several as a,b, or none", text)
		}
		ids = append(ids, id)
	}
	return ids, nil
}
