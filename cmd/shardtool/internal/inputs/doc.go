// Package inputs finds what the sources on a command line are: it expands patterns, and recognizes
// data sets of other systems, whose files are not samples.
package inputs
