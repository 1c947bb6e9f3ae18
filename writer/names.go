package writer

import (
	"fmt"
	"regexp"
)

var partShards = regexp.MustCompile(`^([A-Za-z0-9_][A-Za-z0-9._-]*)-p[0-9]{4,}-[0-9]{6,}\.`)

// shardPrefix begins the names of the shards that a generation adds.
func shardPrefix(name string, generation uint64) string {
	if generation > 1 {
		name += fmt.Sprintf("-v%04d", generation)
	}
	return name + "-"
}

// partPrefix begins the names of the shards of a part.
func partPrefix(name string, generation uint64, part int) string {
	return fmt.Sprintf("%sp%04d-", shardPrefix(name, generation), part)
}

// partObject is the name of a part's manifest. Its bytes are tables (SPEC 6.2) of the part's shards
// alone; its keys table numbers the part's samples from 0.
func partObject(name string, generation uint64, part, parts int) string {
	return fmt.Sprintf("part-%s%04d-of-%04d.bin", shardPrefix(name, generation), part, parts)
}
