package mix

import "fmt"

// EpochRule is a way to set the length of an epoch of a mix.
type EpochRule string

// The rules.
const (
	EpochFirst EpochRule = "first" // until some source has given all it has once
	EpochAll   EpochRule = "all"   // until every source has; the default where weights are given
)

// EpochLength returns the length of an epoch by a rule: the least position at which some source, or
// every source, has given all it has once. Only sources with weight > 0 in a segment begun by then
// count. A segment that begins at a position has begun there. m is the mix at its first start,
// without an Epoch. If the rule is never met, the error names a source.
func (m Mix) EpochLength(rule EpochRule) (uint64, error) {
	if rule != EpochFirst && rule != EpochAll {
		return 0, fmt.Errorf("epoch %.40q: give a number of units, first or all", string(rule))
	}
	if err := m.validateParts(); err != nil {
		return 0, err
	}
	p := &Plan{mix: m}
	st, err := p.firstStretch()
	ok := err == nil
	waiting := map[int]bool{} // for the sources in segments that have begun: whether they have yet to give all
	for ok {
		for s, w := range m.Segments[st.segment].Weights {
			if _, seen := waiting[s]; w > 0 && !seen {
				waiting[s] = true
			}
		}
		var g uint64
		var found bool
		if g, found, err = p.givenOnce(&st, waiting, rule == EpochFirst); found || err != nil {
			return g, err
		}
		st, ok, err = p.after(&st)
	}
	if err != nil {
		return 0, err
	}
	return 0, fmt.Errorf("epoch %s never ends: source %q does not give all it has: give a number of units", rule,
		m.lowest(waiting))
}

// givenOnce finds where, within a stretch, the first or the last of the waiting sources has given
// all it has. It removes the sources that give all in the stretch from waiting.
func (p *Plan) givenOnce(st *stretch, waiting map[int]bool, first bool) (position uint64, ok bool, err error) {
	least, most := uint64(maxPosition), st.from
	for i, l := range st.tree.leaves {
		g, ok := st.reach(i, p.mix.Sources[l.source].Units)
		if waiting[l.source] && ok && g <= st.to && g < maxPosition {
			least, most = min(least, g), max(most, g)
			waiting[l.source] = false
		}
	}
	if first {
		return least, least < maxPosition, nil
	}
	if most == st.to {
		if _, more, err := p.after(st); more || err != nil {
			return 0, false, err // a segment may begin there, and only the next stretch knows its sources
		}
	}
	return most, p.mix.lowest(waiting) == "", nil
}

// lowest returns the name of the lowest waiting source, "" if there is none.
func (m *Mix) lowest(waiting map[int]bool) string {
	for s := range m.Sources {
		if waiting[s] {
			return m.Sources[s].Name
		}
	}
	return ""
}
