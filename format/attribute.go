package format

// AttrKind is the type of an attribute's values.
type AttrKind uint8

const (
	// AttrLabel: a string out of few, for class balance and filters.
	AttrLabel AttrKind = 0
	// AttrInteger: a signed 64-bit integer.
	AttrInteger AttrKind = 1
	// AttrNumber: a float64.
	AttrNumber AttrKind = 2
)

func (k AttrKind) String() string {
	return [...]string{"label", "integer", "number"}[k]
}

// Attribute is a value that samples have outside their fields. The index keeps it, so that it is
// read without reading the samples.
type Attribute struct {
	Name string
	Kind AttrKind
}

// AttrValue is one sample's value of one attribute. Kind selects Label, Integer or Number.
type AttrValue struct {
	Attribute
	Label   string
	Integer int64
	Number  float64
}
