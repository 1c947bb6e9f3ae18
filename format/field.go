package format

// FieldSize is a field's name and the length of its payload.
type FieldSize struct {
	Name string
	Size int64
}

// FieldView is a field of a sample in a decoded block. Both slices are valid as long as the block's
// bytes.
type FieldView struct {
	Name, Data []byte
}

// FieldTotal is the sum over one field of a data set.
type FieldTotal struct {
	Name    string `json:"name"`
	Samples uint64 `json:"samples"`
	Bytes   uint64 `json:"bytes"`
	Min     uint64 `json:"min"`
	Max     uint64 `json:"max"`
}

// Metadata is the key/values of section META. They are written in ascending order of keys.
type Metadata map[string]string
