// Package members reads JSON objects that must have certain members and no others, such as
// checkpoints, and writes and reads the check in them.
package members

import (
	"encoding/json"
	"fmt"
	"hash/crc32"
	"strconv"
)

// Object is a JSON object whose members are read one by one. The first error stays.
type Object struct {
	of    map[string]json.RawMessage
	asked map[string]bool
	err   error
}

// Parse reads the text of an object.
func Parse(text []byte, most int) (*Object, error) {
	if len(text) > most {
		return nil, fmt.Errorf("%d bytes, at most %d: this is another file", len(text), most)
	}
	var of map[string]json.RawMessage
	if err := json.Unmarshal(text, &of); err != nil {
		return nil, fmt.Errorf("cut off or not JSON: %w", err)
	}
	return New(of), nil
}

// New returns the object with these members.
func New(of map[string]json.RawMessage) *Object { return &Object{of: of, asked: map[string]bool{}} }

// Has reports whether the object has a member.
func (o *Object) Has(name string) bool {
	_, has := o.of[name]
	return has
}

// Raw returns the text of a member.
func (o *Object) Raw(name string) json.RawMessage { return o.of[name] }

// Into decodes a member, which must not be null.
func (o *Object) Into(name string, value any) {
	text, ok := o.of[name]
	o.asked[name] = true
	switch {
	case o.err != nil:
	case !ok || string(text) == "null":
		o.err = fmt.Errorf("no %s: it was cut or edited", name)
	default:
		if err := json.Unmarshal(text, value); err != nil {
			o.err = Bad(name, string(text[:min(len(text), 100)]))
		}
	}
}

// Number returns an integer.
func (o *Object) Number(name string) (x uint64) {
	o.Into(name, &x)
	return x
}

// Text returns a string.
func (o *Object) Text(name string) (s string) {
	o.Into(name, &s)
	return s
}

// Numbers reads an array of integers; nil is returned for anything else.
func Numbers(array json.RawMessage) []uint64 {
	var texts []json.RawMessage
	if json.Unmarshal(array, &texts) != nil {
		return nil
	}
	numbers := make([]uint64, len(texts))
	for i, text := range texts {
		var err error
		if numbers[i], err = strconv.ParseUint(string(text), 10, 64); err != nil {
			return nil
		}
	}
	return numbers
}

// Word returns an integer that is written as a string.
func (o *Object) Word(name string) uint64 {
	text := o.Text(name)
	x, err := strconv.ParseUint(text, 10, 64)
	if o.err == nil && (err != nil || strconv.FormatUint(x, 10) != text) {
		o.err = Bad(name, text)
	}
	return x
}

// Is refuses a string that is not the known one.
func (o *Object) Is(name, known string) {
	if text := o.Text(name); o.err == nil && text != known {
		o.err = fmt.Errorf("%s %.40q, this program knows %q: use the program that wrote it", name, text, known)
	}
}

// Err returns the first error so far.
func (o *Object) Err() error { return o.err }

// End returns the first error; members that nothing asked for are one.
func (o *Object) End() error {
	for name := range o.of {
		if o.err == nil && !o.asked[name] {
			o.err = fmt.Errorf("unknown member %.40q", name)
		}
	}
	return o.err
}

// Bad returns the error of a member that cannot have a value.
func Bad(name string, value any) error {
	return fmt.Errorf("%s cannot be %.200q", name, fmt.Sprint(value))
}

// Seal returns the text of an object without blanks, and as its last member check: the CRC-32
// (IEEE, eight hex digits) of the text without that member. It returns the check, too.
func Seal(object any) (text []byte, check string, err error) {
	if text, err = json.Marshal(object); err != nil {
		return nil, "", err
	}
	check = fmt.Sprintf("%08x", crc32.ChecksumIEEE(text))
	return fmt.Appendf(text[:len(text)-1], `,"check":"%s"}`, check), check, nil
}
