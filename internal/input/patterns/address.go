package patterns

import "strings"

// CutAddress divides the address of objects in a store into the address of a folder, with the
// query, and the pattern of their names below it. object reports whether a name without a glob is
// the one of an object; if it is not, the address is a folder's and the pattern is empty. A ?
// begins the query and is never part of a glob.
func CutAddress(addr string, object func(name string) bool) (dir, pattern string, glob bool) {
	place, query, _ := strings.Cut(addr, "?")
	if query != "" {
		query = "?" + query
	}
	scheme, rest, _ := strings.Cut(place, "://")
	host, name, _ := strings.Cut(rest, "/")
	end := strings.IndexAny(name, "*[{")
	if glob = end >= 0; !glob && object(name) {
		end = len(name)
	}
	if end >= 0 {
		end = strings.LastIndexByte(name[:end], '/') + 1
		name, pattern = name[:end], name[end:]
	}
	return strings.TrimSuffix(scheme+"://"+host+"/"+name, "/") + query, pattern, glob
}
