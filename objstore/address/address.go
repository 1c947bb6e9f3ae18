// Package address turns what a user writes for a store into the store: a path today, URLs as stores come.
//
// It is a package of its own so that objstore, which every store imports, imports none of them.
package address

import (
	"errors"
	"fmt"
	"strings"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/local"
)

// ErrScheme: the address names a scheme no store answers to.
var ErrScheme = errors.New("unsupported scheme")

// Open returns the store at an address. A local path is that directory, which need not exist yet; a path to a file is
// refused. An address with a scheme ("s3://bucket/prefix") gives an error that wraps [ErrScheme] and names it.
func Open(addr string) (objstore.Store, error) {
	if addr == "" {
		return nil, errors.New("objstore: the address is empty; give a directory")
	}
	if scheme, rest, ok := cutScheme(addr); ok {
		if scheme == "file" {
			return nil, fmt.Errorf("objstore: open %s: %w file; give the path itself: %s", addr, ErrScheme, rest)
		}
		return nil, fmt.Errorf("objstore: open %s: %w %s; only local directories are supported: "+
			"copy the data to one first", addr, ErrScheme, scheme)
	}
	return local.New(addr, local.Options{})
}

// cutScheme splits scheme://rest. The scheme is RFC 3986's (a letter, then letters, digits, + - .), in lower case.
func cutScheme(addr string) (scheme, rest string, ok bool) {
	scheme, rest, ok = strings.Cut(addr, "://")
	if !ok || scheme == "" {
		return "", "", false
	}
	scheme = strings.ToLower(scheme)
	for i, c := range []byte(scheme) {
		letter := 'a' <= c && c <= 'z'
		other := '0' <= c && c <= '9' || c == '+' || c == '-' || c == '.'
		if !letter && (i == 0 || !other) {
			return "", "", false
		}
	}
	return scheme, rest, true
}
