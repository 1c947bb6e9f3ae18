package ingest

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/shardtool/shardtool/hint"
	"github.com/shardtool/shardtool/internal/input/recognise"
	"github.com/shardtool/shardtool/writer"
)

// kind is a kind of source.
type kind struct {
	// of is the kind of its files. Folders of files and data sets have one with names for messages
	// alone, which no file is recognised as.
	of *recognise.Kind
	// tokens reports that its files contain only token ids.
	tokens bool
	// rows reports that samples are not files, and that names stand for many of them.
	rows bool
	// options are those that apply to this kind and not to all.
	options []string
	// instead is the advice for options that do not apply, under "" for those without their own.
	instead map[string]string
	// afterwards are commands that do what options say, with the data set OUT that was packed without
	// them.
	afterwards map[string]hint.Hint
	// open opens the source and notes what was found. size is the total of the progress, 0 when it is
	// not known.
	open func(ctx context.Context, f *Found) (src writer.Source, size int64, err error)
}

// opened returns a source as the open of a kind does. If it has nothing, which count says, opened
// closes it and returns an error.
func opened(src writer.Source, count int64, where string) (writer.Source, int64, error) {
	if count == 0 {
		src.Close()
		return nil, 0, fmt.Errorf("%w in %s: nothing to pack", writer.ErrEmpty, where)
	}
	_, size := src.Total()
	return src, size, nil
}

// fileKinds are the kinds of files that pack reads.
var fileKinds = []*kind{&parquetKind, &arrowKind, &linesKind, &tarKind, &tokensKind, &arraysKind, &megatronKind,
	&tfrecordKind, &mdsKind, &zipKind}

// allKinds are the fileKinds, folders of files, and data sets.
func allKinds() []*kind { return append(slices.Clone(fileKinds), &filesKind, &datasetKind) }

// kindFor returns the kind of pack for a kind of files, nil where pack does not read it.
func kindFor(of *recognise.Kind) *kind {
	if of == recognise.Text {
		return &textKind
	}
	for _, k := range fileKinds {
		if k.of == of {
			return k
		}
	}
	return nil
}

// kindOf returns the kind that a name states.
func kindOf(name string) *kind { return kindFor(recognise.OfName(name)) }

// kindNames lists the names of the fileKinds.
func kindNames() string {
	var names []string
	for _, k := range fileKinds {
		names = append(names, k.of.Many)
	}
	return strings.Join(names, ", ")
}
