// Package globs chooses names by the globs of --include and --exclude.
package globs

import (
	"path"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

// Choice takes the names that match a glob of Include, or all if there is none, without those that
// match a glob of Exclude. The globs must be valid.
type Choice struct{ Include, Exclude []string }

// Takes reports whether name is taken.
func (c Choice) Takes(name string) bool {
	return (len(c.Include) == 0 || Match(c.Include, name)) && !Match(c.Exclude, name)
}

// TakesHidden reports whether a glob of Include that begins an element with a dot matches name, or
// matches names in the folder name.
func (c Choice) TakesHidden(name string) bool {
	for _, g := range c.Include {
		if (strings.HasPrefix(g, ".") || strings.Contains(g, "/.")) && (Match([]string{g}, name) || strings.HasPrefix(g, name+"/")) {
			return true
		}
	}
	return false
}

// Match reports whether one of globs matches name. A glob without a slash is matched with the last
// element.
func Match(globs []string, name string) bool {
	for _, g := range globs {
		of := name
		if !strings.Contains(g, "/") {
			of = path.Base(name)
		}
		if doublestar.MatchUnvalidated(g, of) {
			return true
		}
	}
	return false
}
