// Package testdata holds data that several packages' tests and the benchmarks
// read. Where it comes from, and under which licence, is in LICENSES.md.
package testdata

import _ "embed"

// Prose is text/prose.txt: two English books, a megabyte of UTF-8.
//
//go:embed text/prose.txt
var Prose string
