// Package source reads samples from files in folders and from objects of a store. Its subpackages
// read archives, rows and token ids.
//
// A source implements writer.Source. The order of its samples is a function of names and options.
// The writer's workers read the payloads. An error names the file that cannot be read.
package source
