package main

import (
	"context"
	"fmt"
	"io"

	"github.com/shardtool/shardtool/cmd/shardtool/internal/recognise"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
)

// kind is a kind of source that pack can read.
type kind struct {
	// name and one are for messages: "Parquet files", "a Parquet file".
	name, one string
	// tokens reports that its files contain only token ids.
	tokens bool
	// of is the kind of its files; nil for folders of files and for data sets.
	of *recognise.Kind
	// flags are those flags that apply to this kind and not to all.
	flags []string
	// instead is the advice for a flag that does not apply.
	instead func(flag string) string
	// open opens the source and prints what was found. size is the total of the progress, 0 when it is
	// not known.
	open func(ctx context.Context, found *found, f *packFlags, stderr io.Writer) (src writer.Source, size int64, err error)
}

// found is the kind and the files of the sources of a pack.
type found struct {
	kind *kind
	srcs []string
	// files are the files of a kind in fileKinds, in the order of srcs. For folders of files they are
	// the stores among srcs, with Store only.
	files []source.Input
	// why explains, in messages, why a folder is one of files.
	why string
	// close removes temporary files.
	close func()
}

// known prints how much was found.
func (f *packFlags) known(stderr io.Writer, format string, args ...any) {
	if !f.quiet {
		fmt.Fprintf(stderr, "found "+format+"\n", args...)
	}
}

// stdinName is the source that stands for standard input. A folder of that name is ./-.
const stdinName = "-"
