// Package source has what samples come from: today, files in folders.
//
// A source implements writer.Source. The order of its samples is a function of names and options, its payloads are read by
// the writer's workers, and what it cannot read is an error that names the file.
package source
