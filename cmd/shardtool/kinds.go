package main

import (
	"slices"
	"strings"
)

// fileKinds are the kinds that are recognized by the names of files, in order of precedence.
var fileKinds = []*kind{&parquetKind, &linesKind, &tarKind, &tokensKind}

// allKinds are the fileKinds, folders of files, and data sets.
func allKinds() []*kind { return append(slices.Clone(fileKinds), &filesKind, &datasetKind) }

func kindOf(name string) *kind {
	for _, k := range fileKinds {
		if k.match(name) {
			return k
		}
	}
	return nil
}

// sameKind returns the kind of a list of names, which must all be of the same kind.
func sameKind(src string, names []string) (*kind, error) {
	var k *kind
	for _, name := range names {
		of := kindOf(name)
		switch {
		case of == nil:
			return nil, usagef("source %s stands for %s, among others: globs and braces are for %s; name folders one by one", src, name, kindNames())
		case k == nil:
			k = of
		case k != of:
			return nil, usagef("source %s stands for %s and %s: pack one kind, then the other with --append", src, names[0], name)
		}
	}
	return k, nil
}

// kindNames lists the names of the fileKinds.
func kindNames() string {
	var names []string
	for _, k := range fileKinds {
		names = append(names, k.name)
	}
	return strings.Join(names, ", ")
}
