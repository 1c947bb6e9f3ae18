package kinds

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Storage is how Arrow stores the values of a feature: as structs, whose parts have names, as
// lists, which have one part, or as scalars, which have none.
type Storage struct {
	Scalar
	Names []string
	Parts []*Storage
}

// Base is what scalars are, whatever their size.
type Base int

// The bases of scalars.
const (
	Int Base = iota
	Uint
	Float
	Bool
	Text
	JSON
	Binary
	Fixed // bytes of one length
	Date
	Time
	Timestamp
	Duration
	Decimal
	Null
)

// Scalar is a type of scalars.
type Scalar struct {
	Base Base
	// Bits is the size of integers and floating-point numbers, and the number of bytes of Fixed.
	Bits             int
	Unit             time.Duration // of Time, Timestamp and Duration
	Zone             bool          // a Timestamp is in UTC
	Precision, Scale int           // of a Decimal
}

var baseNames = [...]string{
	"int", "uint", "float", "bool", "string", "json", "binary", "fixed_size_binary", "date", "time", "timestamp",
	"duration", "decimal", "null",
}

// String returns the base and the size, for errors.
func (s Scalar) String() string {
	if s.Bits == 0 {
		return baseNames[s.Base]
	}
	return fmt.Sprint(baseNames[s.Base], s.Bits)
}

var dtypes = regexp.MustCompile(`^([a-z_]+?)(?:_view)?(\d*)(?:\[(\w+)(, ?tz=[\w/+:-]+)?\]|\((\d+), ?(\d+)\))?$`)

// units are the units of times, by their names in dtypes.
var units = map[string]time.Duration{"s": time.Second, "ms": time.Millisecond, "us": time.Microsecond,
	"ns": time.Nanosecond}

// UnitName returns the name of a unit of times in dtypes.
func UnitName(unit time.Duration) string {
	for name, of := range units {
		if of == unit {
			return name
		}
	}
	return ""
}

// ParseScalar parses the dtype of a Value, in the words of datasets and Arrow.
func ParseScalar(dtype string) (s Scalar, err error) {
	m := dtypes.FindStringSubmatch(dtype)
	if m == nil {
		return s, fmt.Errorf("the dtype %q is not known", dtype)
	}
	bits, _ := strconv.Atoi(m[2])
	s.Unit, s.Zone = units[m[3]], m[4] != ""
	s.Precision, _ = strconv.Atoi(m[5])
	s.Scale, _ = strconv.Atoi(m[6])
	ok := m[3] == "" && m[5] == ""
	switch m[1] {
	case "int", "uint":
		s.Base, s.Bits = Int, bits
		if m[1] == "uint" {
			s.Base = Uint
		}
		ok = ok && slices.Contains([]int{8, 16, 32, 64}, bits)
	case "float", "double", "halffloat":
		if bits == 0 {
			bits = map[string]int{"float": 32, "double": 64, "halffloat": 16}[m[1]]
		}
		s.Base, s.Bits = Float, bits
		ok = ok && slices.Contains([]int{16, 32, 64}, bits)
	case "bool", "bool_":
		s.Base = Bool
	case "string", "large_string", "utf", "large_utf":
		s.Base = Text
	case "binary", "large_binary":
		s.Base = Binary
	case "fixed_size_binary":
		s.Base, s.Unit = Fixed, 0
		s.Bits, _ = strconv.Atoi(m[3])
		ok = s.Bits > 0 && s.Bits <= 1<<20
	case "date":
		s.Base = Date
	case "time":
		s.Base = Time
		ok = s.Unit > 0 && !s.Zone && (bits == 32) == (s.Unit >= time.Millisecond)
	case "timestamp":
		s.Base = Timestamp
		ok = s.Unit > 0
	case "duration":
		s.Base = Duration
		ok = s.Unit > 0 && !s.Zone
	case "decimal":
		s.Base = Decimal
		ok = s.Precision > 0 && s.Scale <= s.Precision && (bits == 128 && s.Precision <= 38 || bits == 256 &&
			s.Precision <= 76)
	case "null":
		s.Base = Null
	default:
		ok = false
	}
	if !ok {
		return s, fmt.Errorf("the dtype %q is not known", dtype)
	}
	return s, nil
}

// media are the classes whose values are files.
var media = []string{"Image", "Audio", "Video", "Pdf", "Nifti", "Mesh", "BioSequence", "BioStructure"}

// mediaOf has the classes of files, by the extensions of fields.
var mediaOf = map[string]string{
	"jpg": "Image", "jpeg": "Image", "png": "Image", "webp": "Image", "gif": "Image", "bmp": "Image", "tif": "Image",
	"tiff": "Image", "ppm": "Image",
	"wav": "Audio", "mp3": "Audio", "flac": "Audio", "ogg": "Audio", "opus": "Audio", "m4a": "Audio",
	"mp4": "Video", "mov": "Video", "avi": "Video", "mkv": "Video", "webm": "Video",
}

// MediaOf returns the class of files that a field has by its extension, empty if it is none. A name
// without a dot is one.
func MediaOf(field string) string {
	return mediaOf[strings.ToLower(field[strings.LastIndexByte(field, '.')+1:])]
}

// files is how files are stored.
var files = &Storage{Names: []string{"bytes", "path"}, Parts: []*Storage{{Scalar: Scalar{Base: Binary}},
	{Scalar: Scalar{Base: Text}}}}

// Media reports whether the values of the feature are files: structs of bytes and path.
func (f *Feature) Media() bool { return slices.Contains(media, f.Class) }

// Storage returns how the feature is stored. A class that is not known is an error.
func (f *Feature) Storage() (s *Storage, err error) {
	scalar := func(base Base, bits int) *Storage { return &Storage{Scalar: Scalar{Base: base, Bits: bits}} }
	list := func(of *Storage) *Storage { return &Storage{Parts: []*Storage{of}} }
	switch {
	case f.Media():
		return files, nil
	case f.Class == "" && len(f.Parts) == 0:
		return nil, fmt.Errorf("a struct has no parts")
	case len(f.Parts) > 0:
		s = &Storage{Names: f.Names}
		for _, part := range f.Parts {
			of, err := part.Storage()
			if err != nil {
				return nil, err
			}
			s.Parts = append(s.Parts, of)
		}
		return s, nil
	}
	var said struct {
		DType     string            `json:"dtype"`
		Shape     []json.RawMessage `json:"shape"`
		Languages []string          `json:"languages"`
	}
	text, err := json.Marshal(f.Rest)
	if err == nil {
		err = json.Unmarshal(text, &said)
	}
	if err != nil {
		return nil, fmt.Errorf("the feature %s: %w", f.Class, err)
	}
	switch f.Class {
	case "ClassLabel":
		return scalar(Int, 64), nil
	case "Json":
		return scalar(JSON, 0), nil
	case "Value":
		of, err := ParseScalar(said.DType)
		return &Storage{Scalar: of}, err
	case "Array2D", "Array3D", "Array4D", "Array5D":
		of, err := ParseScalar(said.DType)
		if err == nil && len(said.Shape) != int(f.Class[5]-'0') {
			err = fmt.Errorf("the feature %s has a shape of %d dimensions", f.Class, len(said.Shape))
		}
		s = &Storage{Scalar: of}
		for range min(len(said.Shape), 5) {
			s = list(s)
		}
		return s, err
	case "Translation":
		slices.Sort(said.Languages)
		s = &Storage{Names: slices.Compact(said.Languages)}
		for range s.Names {
			s.Parts = append(s.Parts, scalar(Text, 0))
		}
		if len(s.Parts) == 0 || len(s.Parts) > maxParts {
			return nil, fmt.Errorf("the feature %s has %d languages", f.Class, len(s.Parts))
		}
		return s, nil
	case "TranslationVariableLanguages":
		return &Storage{Names: []string{"language", "translation"}, Parts: []*Storage{list(scalar(Text, 0)),
			list(scalar(Text, 0))}}, nil
	}
	return nil, fmt.Errorf("the feature %s is not known", f.Class)
}

// Holds reports whether values that are stored as of are values of s without a change.
func (s *Storage) Holds(of *Storage) bool {
	if len(s.Parts) != len(of.Parts) || len(s.Names) != len(of.Names) {
		return false
	}
	for i, part := range s.Parts {
		other := i
		if len(s.Names) > 0 {
			other = slices.Index(of.Names, s.Names[i])
		}
		if other < 0 || !part.Holds(of.Parts[other]) {
			return false
		}
	}
	return len(s.Parts) > 0 || s.Scalar.holds(of.Scalar)
}

func (s Scalar) holds(of Scalar) bool {
	switch {
	case of.Base == Null:
		return true
	case s.Base == JSON:
		return of.Base == JSON || of.Base == Text
	case s.Base == Binary:
		return of.Base == Binary || of.Base == Fixed
	case s.Base == Duration && of.Base == Int: // Parquet has no durations
		return of.Bits == 64
	case s.Base == Int && of.Base == Uint:
		return s.Bits > of.Bits
	case s.Base != of.Base:
		return false
	case s.Base == Time || s.Base == Timestamp:
		return s.Unit <= of.Unit || s.Unit == time.Second && of.Unit == time.Millisecond // Parquet has no seconds
	case s.Base == Decimal:
		return s.Scale == of.Scale && s.Precision >= of.Precision
	case s.Base == Fixed:
		return s.Bits == of.Bits
	}
	return s.Bits >= of.Bits
}
