package main

import (
	"slices"
	"strings"

	"github.com/shardtool/shardtool/internal/recognise"
)

// fileKinds are the kinds of files that pack reads.
var fileKinds = []*kind{&parquetKind, &arrowKind, &linesKind, &tarKind, &tokensKind, &arraysKind, &megatronKind, &tfrecordKind, &mdsKind, &zipKind}

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
