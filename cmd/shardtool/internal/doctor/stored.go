package doctor

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/shardtool/shardtool/reader"
)

// Stored returns those findings that the totals of a data set show, without a read of its shards.
// The totals count removed samples, so that a data set with such has none.
func Stored(d *reader.Dataset, fileNames bool) []Finding {
	e, info := newExamination(Options{FileNames: fileNames}), d.Info()
	if len(info.Removed) > 0 {
		return nil
	}
	e.lists = d.Lists()
	for _, f := range info.Fields {
		if f.Samples < d.NumSamples() && !e.element(f.Name) {
			e.found(FieldsDiffer, fmt.Sprintf("%s is in %d of %d samples", shownField(f.Name), f.Samples,
				d.NumSamples()))
		}
		if f.Min == 0 {
			e.found(Empty, "the field "+shownField(f.Name))
		}
		e.fieldName("", f.Name)
	}
	return e.report().Findings
}

// shownField is the name of a field in a list of names.
func shownField(name string) string {
	if name == "" || strings.ContainsAny(name, " \n") {
		return strconv.Quote(name)
	}
	return name
}
