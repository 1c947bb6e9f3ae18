package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/ingest"
	"github.com/shardtool/shardtool/writer/source/tokens"
)

// tokenFlags are those flags of token ids whose text is parsed.
type tokenFlags struct{ separator, dtype, raw, remainder string }

// tokenOnly are flags that need --pack-tokens.
var tokenOnly = []string{"separator", "tokens-field", "pack-remainder", "pad-id"}

func (f *tokenFlags) add(cmd *cobra.Command, to *ingest.Tokens) {
	fl := cmd.Flags()
	fl.Int64Var(&to.Length, "pack-tokens", 0, "tokens: make samples of this many token ids, from arrays or documents")
	fl.StringVar(&f.separator, "separator", "", "tokens: join documents, with this id (or a,b) after each, or none")
	fl.StringVar(&to.Field, "tokens-field", "", "tokens: the field or column with the ids of a document")
	fl.StringVar(&f.dtype, "token-dtype", "",
		"tokens: type of ids in samples, uint8 to int64 (default: the type of the arrays, int32 for documents)")
	fl.StringVar(&f.remainder, "pack-remainder", "keep",
		"tokens: a remainder shorter than a sample: keep it as a shorter sample, pad or drop")
	fl.Int64Var(&to.PadID, "pad-id", 0, "tokens: the id that --pack-remainder pad pads with (default: the separator)")
	fl.StringVar(&f.raw, "raw-dtype", "", "tokens: type of ids in .bin files without a header")
	titled(cmd, "Token ids")
}

// options parses the flags and checks them against each other.
func (f *tokenFlags) options(cmd *cobra.Command, to *ingest.Tokens) error {
	given := cmd.Flags().Changed
	if given("pack-tokens") && to.Length < 1 {
		return usagef("--pack-tokens %d: give the number of tokens of a sample, such as 2048", to.Length)
	}
	for _, flag := range tokenOnly {
		if given(flag) && to.Length == 0 {
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
	var err error
	if to.DType, err = dtype("token-dtype", f.dtype); err != nil {
		return err
	}
	if to.Raw, err = dtype("raw-dtype", f.raw); err != nil {
		return err
	}
	if to.Remainder, err = tokens.ParseRemainder(f.remainder); err != nil {
		return usagef("--pack-%w", err)
	}
	if to.Separator, err = parseSeparator(f.separator); err != nil {
		return usagef("--separator %w", err)
	}
	switch {
	case given("pad-id") && to.Remainder != tokens.Pad:
		return usagef("--pad-id goes with --pack-remainder pad")
	case to.Remainder == tokens.Pad && !given("pad-id") && len(to.Separator) == 0:
		return usagef("--pack-remainder pad: give the id to pad with, --pad-id")
	case to.Remainder == tokens.Pad && !given("pad-id"):
		to.PadID = to.Separator[len(to.Separator)-1]
	}
	to.Join = f.separator != ""
	return nil
}

// provenance records the options in the metadata of the data set.
func (f *tokenFlags) provenance(cmd *cobra.Command, to map[string]string) {
	for _, flag := range []string{"pack-tokens", "separator", "tokens-field", "token-dtype", "pack-remainder", "pad-id",
		"raw-dtype"} {
		if fl := cmd.Flags().Lookup(flag); fl.Changed {
			to[strings.ReplaceAll(flag, "-", "_")] = fl.Value.String()
		}
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
