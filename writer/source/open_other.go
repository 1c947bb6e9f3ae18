//go:build !unix

package source

const openNonblock = 0
