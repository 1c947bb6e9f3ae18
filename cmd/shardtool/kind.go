package main

import (
	"context"
	"fmt"
	"io"

	"github.com/shardtool/shardtool/internal/recognise"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
)

// kind is a kind of source that pack can read.
type kind struct {
	// of is the kind of its files. Folders of files and data sets have one with names for messages
	// alone, which no file is recognised as.
	of *recognise.Kind
	// tokens reports that its files contain only token ids.
	tokens bool
	// flags are those flags that apply to this kind and not to all.
	flags []string
	// instead is the advice for flags that do not apply, under "" for those without their own.
	instead map[string]string
	open    openSource
}

// openSource opens the source and prints what was found. size is the total of the progress, 0 when
// it is not known.
type openSource func(ctx context.Context, found *found, f *packFlags, stderr io.Writer) (src writer.Source, size int64, err error)

// opened returns a source as an openSource does. If it has nothing, which count says, opened closes
// it and returns an error.
func opened(src writer.Source, count int64, where string) (writer.Source, int64, error) {
	if count == 0 {
		src.Close()
		return nil, 0, &exitError{exitNotFound, fmt.Errorf("%w in %s: nothing to pack", writer.ErrEmpty, where)}
	}
	_, size := src.Total()
	return src, size, nil
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

// knownSplits prints the splits that become one data set, if there are several.
func (f *packFlags) knownSplits(stderr io.Writer, splits recognise.Splits) {
	if len(splits) > 1 {
		f.known(stderr, "the splits %s, which become one data set", splits.Names())
	}
}

// stdinName is the source that stands for standard input. A folder of that name is ./-.
const stdinName = "-"
