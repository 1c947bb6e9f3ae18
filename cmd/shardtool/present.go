package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/internal/input/tally"
)

// outputFlags are the flags of how a result is printed, and of whether progress is.
type outputFlags struct{ json, quiet bool }

// add adds the flags. usage describes --json.
func (f *outputFlags) add(cmd *cobra.Command, usage string) {
	cmd.Flags().BoolVar(&f.json, "json", false, usage)
	cmd.Flags().BoolVarP(&f.quiet, "quiet", "q", false, "no progress")
}

// addWriting is add for a command whose result is a summary of what it has written.
func (f *outputFlags) addWriting(cmd *cobra.Command) {
	f.add(cmd, "print the result as JSON")
	cmd.Flags().Lookup("quiet").Usage = "print warnings and errors alone"
}

// result is present, for what a command has written. With --quiet people are told only what was
// left out; names may be nil.
func (f *outputFlags) result(cmd *cobra.Command, names *tally.Tally, v any, text func(w io.Writer)) error {
	if f.quiet && !f.json {
		printLeft(cmd.ErrOrStderr(), names)
		return nil
	}
	return present(cmd, f.json, byName{v}, text)
}

// byName is a struct whose members JSON has in the order of their names, as programs know them.
// Types that several results embed may then declare them in any order.
type byName struct{ of any }

// MarshalJSON encodes the struct.
func (b byName) MarshalJSON() ([]byte, error) {
	text, err := json.Marshal(b.of)
	if err != nil {
		return nil, err
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		return nil, err
	}
	return json.Marshal(members)
}

// printJSON writes one indented value.
func printJSON(cmd *cobra.Command, v any) error {
	enc := json.NewEncoder(cmd.OutOrStdout())
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// present prints a result: v as JSON, or for people what text writes. text need not look at errors
// of its writer, which present returns.
func present(cmd *cobra.Command, asJSON bool, v any, text func(w io.Writer)) error {
	if asJSON {
		return printJSON(cmd, v)
	}
	w := bufio.NewWriter(cmd.OutOrStdout())
	text(w)
	return w.Flush()
}

// printTable prints a row for each value below a head, in columns. The head and the rows separate
// their cells by tabs; align is as in package tabwriter.
func printTable[T any](w io.Writer, align uint, head string, values []T, row func(t io.Writer, v *T)) {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', align)
	fmt.Fprintln(t, head)
	for i := range values {
		row(t, &values[i])
	}
	_ = t.Flush() // w keeps the error
}

const right = tabwriter.AlignRight
