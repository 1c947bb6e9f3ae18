package lines

import (
	"unicode/utf8"

	"github.com/shardtool/shardtool/writer/source/internal/rows"
)

// maxDepth is the maximum nesting of lists and objects.
const maxDepth = 10_000

// jsonLine parses a line by RFC 8259. It checks the whole line, including values that become no
// field.
func (p *parser) jsonLine(c *chunk, b []byte) (blank bool, err error) {
	i := skipSpace(b, 0)
	if i == len(b) {
		return true, nil
	}
	if !p.valid && !utf8.Valid(b) {
		at := 0
		for r, n := utf8.DecodeRune(b); r != utf8.RuneError || n > 1; r, n = utf8.DecodeRune(b[at:]) {
			at += n
		}
		return false, bad(at, "it is not UTF-8: convert the file, such as with `iconv -f latin1 -t utf-8`")
	}
	if b[i] != '{' {
		return false, notObject(b, i, c.of.comma == jsonList)
	}
	i, wrong := p.members(c, b, i+1)
	if wrong == nil {
		if i = skipSpace(b, i); i < len(b) {
			wrong = bad(i, "text follows the object: each line holds one")
		}
	}
	if wrong != nil {
		return false, wrong
	}
	return false, nil
}

func notObject(b []byte, i int, element bool) error {
	hint := ""
	if b[i] == '[' && !element {
		hint = "; where the file is one JSON list, its name has to end in .json"
	}
	return bad(i, "a row is one JSON object, and this one begins with %q%s", rune(b[i]), hint)
}

// members parses an object from after its opening brace to after its closing one.
func (p *parser) members(c *chunk, b []byte, i int) (int, *syntaxError) {
	i = skipSpace(b, i)
	if i < len(b) && b[i] == '}' {
		return i + 1, nil
	}
	for {
		if i == len(b) || b[i] != '"' {
			return i, wants(b, i, "a member's name in quotes")
		}
		begin := i + 1
		end, escaped, err := scanString(b, begin)
		if err != nil {
			return i, err
		}
		name := b[begin:end]
		if escaped {
			if p.scratch, err = unescape(p.scratch[:0], name, begin); err != nil {
				return i, err
			}
			name = p.scratch
		}
		col := p.columns[string(name)]
		if col == nil {
			col = p.add(string(name))
		}
		if col.Cell.Kind != rows.Absent {
			return i, bad(i, "the member %s comes twice", quoted(col.Name))
		}
		if len(p.Has) == maxColumns {
			return i, bad(i, "it has more than %d members", maxColumns)
		}
		p.Has = append(p.Has, &col.Column)
		if i = skipSpace(b, end+1); i == len(b) || b[i] != ':' {
			return i, wants(b, i, "a colon")
		}
		if i, err = p.member(c, b, skipSpace(b, i+1), col); err != nil {
			return i, err
		}
		i = skipSpace(b, i)
		switch {
		case i < len(b) && b[i] == ',':
			i = skipSpace(b, i+1)
		case i < len(b) && b[i] == '}':
			return i + 1, nil
		default:
			return i, wants(b, i, "a comma or }")
		}
	}
}

// member parses the value of a member.
func (p *parser) member(c *chunk, b []byte, i int, col *column) (end int, err *syntaxError) {
	v := &col.Cell
	if i < len(b) && b[i] == '"' {
		begin := i + 1
		end, escaped, err := scanString(b, begin)
		if err != nil {
			return i, err
		}
		v.Kind, v.B = rows.Text, b[begin:end:end]
		if escaped && col.Wanted {
			at := len(c.Data)
			if c.Data, err = unescape(c.Data, v.B, begin); err != nil {
				return i, err
			}
			v.B = c.Since(at)
		}
		return end + 1, nil
	}
	kind, end, err := p.scanValue(b, i)
	if err != nil {
		return end, err
	}
	v.Kind, v.B = kind, b[i:end:end]
	return end, nil
}

// scanValue finds the end of a value other than a string.
func (p *parser) scanValue(b []byte, i int) (k rows.Kind, end int, err *syntaxError) {
	if i == len(b) {
		return 0, i, wants(b, i, "a value")
	}
	switch b[i] {
	case '{', '[':
		k = rows.List
		if b[i] == '{' {
			k = rows.Object
		}
		end, err = p.scanNested(b, i)
		return k, end, err
	}
	return p.plan.scan(b, i)
}

// scanNested finds the end of a list or object. It does not recurse.
func (p *parser) scanNested(b []byte, i int) (end int, err *syntaxError) {
	open := p.stack[:0]
	defer func() { p.stack = open[:0] }()
	for {
		// A value begins here.
		switch {
		case i == len(b):
			return i, wants(b, i, "a value")
		case b[i] == '{' || b[i] == '[':
			if len(open) == maxDepth {
				return i, bad(i, "lists and objects are nested more than %d deep", maxDepth)
			}
			open = append(open, b[i])
			closing := b[i] + 2 // } and ] have the codes of { and [ plus 2
			if i = skipSpace(b, i+1); i < len(b) && b[i] == closing {
				break
			}
			if closing == '}' {
				if i, err = scanName(b, i); err != nil {
					return i, err
				}
			}
			continue
		case b[i] == '"':
			if i, _, err = scanString(b, i+1); err != nil {
				return i, err
			}
			i++
		default:
			if _, i, err = p.plan.scan(b, i); err != nil {
				return i, err
			}
		}
		// A value ends here: skip a comma or closing brackets.
		for {
			i = skipSpace(b, i)
			top := open[len(open)-1]
			if i < len(b) && b[i] == top+2 {
				i++
				if open = open[:len(open)-1]; len(open) == 0 {
					return i, nil
				}
				continue
			}
			if i == len(b) || b[i] != ',' {
				return i, wants(b, i, map[byte]string{'{': "a comma or }", '[': "a comma or ]"}[top])
			}
			i = skipSpace(b, i+1)
			if top == '{' {
				if i, err = scanName(b, i); err != nil {
					return i, err
				}
			}
			break
		}
	}
}
