package tokens

import (
	"fmt"
	"strconv"
	"strings"
)

// ParseSeparator parses the ids that follow each document: "50256", several as "1,2", or "none",
// which like an empty text means that nothing follows.
func ParseSeparator(text string) (ids []int64, err error) {
	if text == "" || text == "none" {
		return nil, nil
	}
	for word := range strings.SplitSeq(text, ",") {
		id, err := strconv.ParseInt(strings.TrimSpace(word), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%q: give a token id, several as a,b, or none", text)
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// DefaultPadID returns the id that pads a remainder where the user gives none: the last one of the
// separator. ok is false without a separator.
func DefaultPadID(separator []int64) (id int64, ok bool) {
	if len(separator) == 0 {
		return 0, false
	}
	return separator[len(separator)-1], true
}
