// Package patterns finds what patterns of sources name: globs and braces, of paths and of
// addresses.
package patterns
