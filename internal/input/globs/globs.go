// Package globs chooses names by the globs of --include and --exclude.
package globs

import (
	"path"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/shardtool/shardtool/internal/input/tally"
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
func (c Choice) TakesHidden(name string) bool { return c.spells(".", name) }

// TakesApart is like TakesHidden for an underscore.
func (c Choice) TakesApart(name string) bool { return c.spells("_", name) }

func (c Choice) spells(mark, name string) bool {
	for _, g := range c.Include {
		if begins(g, mark) && (Match([]string{g}, name) || strings.HasPrefix(g, name+"/")) {
			return true
		}
	}
	return false
}

// begins reports whether an element of a name or a glob begins with mark.
func begins(name, mark string) bool {
	return strings.HasPrefix(name, mark) || strings.Contains(name, "/"+mark)
}

// Hidden reports whether an element of a name begins with a dot. The elements . and .. hide nothing:
// a name that has one cannot be read at all.
func Hidden(name string) bool {
	for element := range strings.SplitSeq(name, "/") {
		if strings.HasPrefix(element, ".") && element != "." && element != ".." {
			return true
		}
	}
	return false
}

// Fork reports whether a file is of those that macOS adds to archives and to other file systems.
func Fork(name string) bool {
	return begins(name, "._") || strings.HasPrefix(name, "__MACOSX/") || strings.Contains(name, "/__MACOSX/")
}

// Leaves returns the rule by which a name is left out, or the empty rule for one that is taken.
func (c Choice) Leaves(name string) tally.Rule {
	if rule := c.Hides(name, name); rule != "" {
		return rule
	}
	if !c.Takes(name) {
		return tally.Filtered
	}
	return ""
}

// success is the empty file by which Hadoop and Spark say that a folder of theirs is whole.
const success = "_SUCCESS"

// Hides returns the rule by which a part of a name hides it, or the empty rule.
func (c Choice) Hides(part, name string) tally.Rule {
	switch {
	case Fork(part) && !c.TakesHidden(name) && !c.TakesApart(name):
		return tally.Fork
	case Hidden(part) && !c.TakesHidden(name), path.Base(part) == success && !c.TakesApart(name):
		return tally.Hidden
	}
	return ""
}

// Apart reports whether programs that read tables ignore a file for its name, as they do those that
// others write beside the rows or have not finished: an element begins with an underscore and is no
// folder key=value, or Hadoop is still copying the file.
func Apart(name string) bool {
	for element := range strings.SplitSeq(name, "/") {
		if strings.HasPrefix(element, "_") && !strings.Contains(element, "=") {
			return true
		}
	}
	return strings.HasSuffix(name, "._COPYING_")
}

// Passes reports whether a glob that matches a file of rows or an archive leaves it out for a name
// that is Hidden or Apart: unless an element of the glob begins with the mark itself.
func Passes(glob, name string) bool {
	return Hidden(name) && !begins(glob, ".") || Apart(name) && !begins(glob, "_")
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
