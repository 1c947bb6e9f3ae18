// Package viewfile encodes and decodes the files of views (SPEC 10): which samples of a data set an
// epoch has and how often, and the objects that name them.
package viewfile

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/damage"
	"github.com/shardtool/shardtool/internal/format/names"
	"github.com/shardtool/shardtool/internal/format/section"
	"github.com/shardtool/shardtool/internal/sys/plain"
)

// A view file lists the samples of a data set that an epoch has, and how often (SPEC 10): a
// directory as in tables, then its sections.
//
//	VHED: digest of the data set, samples u64, draws u64; of a view with classes their number u64
//	VCLS: part p: a weight for each of the classes from p·2^20 on; in a view with classes
//	VBIT: part p: a bit for each of the samples from p·2^23 on; in a subset, whose draws are 0
//	VWGT: part p: for each of the samples from p·2^20 on its weight, or its class if there are any
const (
	magic       = "SHRDVIW1"
	kindHead    = "VHED"
	kindBits    = "VBIT"
	kindClasses = "VCLS"
	kindWeights = "VWGT"

	bitsPerPart    = 1 << 23 // samples of a VBIT
	weightsPerPart = 1 << 20 // samples of a VWGT, or classes of a VCLS
)

// View is the content of a view file. It has either Chosen or Weights.
type View struct {
	// Digest and Samples describe the data set.
	Digest  format.Hash
	Samples uint64
	// Chosen has bit i mod 8 of byte i/8 set for each sample i of a subset.
	Chosen []byte
	// Weights has the weight of each sample, and Draws is the number of draws of an epoch. With
	// Classes, Weights has the number of the class that the sample is of, or 0: classes are numbered
	// from 1, by their first samples.
	Weights []uint32
	Draws   uint64
	// Classes has the weight of each class; nil: the view has none.
	Classes []uint64
}

// CheckLabel returns an ErrName for what cannot be the name of a view, see names.IsLabel.
func CheckLabel(s string) error {
	switch {
	case names.IsViewID(s):
		return fmt.Errorf("view %q: 16 hexadecimal digits are the ID of a view%w", s, plain.Silent(format.ErrName))
	case !names.IsLabel(s):
		return fmt.Errorf("view %.80q: use 1 to 64 of the characters A-Z, a-z, 0-9, '.', '_' and '-', not beginning with '.' or '-'%w", s, plain.Silent(format.ErrName))
	}
	return nil
}

// Subset reports whether the view has each of its samples once in every epoch.
func (v *View) Subset() bool { return v.Draws == 0 }

// Kind is the Kind of a label of the view.
func (v *View) Kind() string {
	switch {
	case v.Subset():
		return "subset"
	case v.Classes != nil:
		return "classes"
	}
	return "weights"
}

// ID names the view in checkpoints, and is part of its file's name: the first 16 hexadecimal digits
// of its identity, the SHA-256 of its content. It does not depend on compression.
func (v *View) ID() string {
	h := sha256.New()
	version := "shardtool-view-1\n"
	if v.Classes != nil {
		version = "shardtool-view-2\n"
	}
	h.Write(v.appendHead([]byte(version)))
	h.Write(v.Chosen)
	buf := make([]byte, 0, 4<<10)
	for _, g := range v.Classes {
		h.Write(binary.LittleEndian.AppendUint64(buf, g))
	}
	for i, u := range v.Weights {
		buf = binary.LittleEndian.AppendUint32(buf, u)
		if len(buf) == cap(buf) || i == len(v.Weights)-1 {
			h.Write(buf)
			buf = buf[:0]
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

func (v *View) appendHead(dst []byte) []byte {
	dst = append(dst, v.Digest[:]...)
	dst = binary.LittleEndian.AppendUint64(dst, v.Samples)
	dst = binary.LittleEndian.AppendUint64(dst, v.Draws)
	if v.Classes != nil {
		dst = binary.LittleEndian.AppendUint64(dst, uint64(len(v.Classes)))
	}
	return dst
}

// Compact leaves out the classes without samples, and numbers the others by their first samples.
func (v *View) Compact() {
	if v.Classes == nil {
		return
	}
	number := make([]uint32, len(v.Classes)+1)
	classes := make([]uint64, 0, len(v.Classes))
	for i, k := range v.Weights {
		if k > 0 && number[k] == 0 {
			classes = append(classes, v.Classes[k-1])
			number[k] = uint32(len(classes))
		}
		v.Weights[i] = number[k]
	}
	v.Classes = classes
}

// Encode returns the bytes of the view's file.
func (v *View) Encode() ([]byte, error) {
	if err := v.check(); err != nil {
		return nil, err
	}
	secs := []section.Raw{{Kind: kindHead, Critical: true, Raw: v.appendHead(nil)}}
	for at := 0; at < len(v.Chosen); at += bitsPerPart / 8 {
		part := v.Chosen[at:min(at+bitsPerPart/8, len(v.Chosen))]
		secs = append(secs, section.Raw{Kind: kindBits, Part: uint32(at / (bitsPerPart / 8)), Critical: true,
			Raw: part})
	}
	for at := 0; at < len(v.Classes); at += weightsPerPart {
		part := v.Classes[at:min(at+weightsPerPart, len(v.Classes))]
		secs = append(secs, section.Column(kindClasses, uint32(at/weightsPerPart), true, part))
	}
	column := make([]uint64, 0, min(weightsPerPart, len(v.Weights)))
	for at := 0; at < len(v.Weights); at += weightsPerPart {
		column = column[:0]
		for _, u := range v.Weights[at:min(at+weightsPerPart, len(v.Weights))] {
			column = append(column, uint64(u))
		}
		secs = append(secs, section.Column(kindWeights, uint32(at/weightsPerPart), true, column))
	}
	front := section.DirectoryLen(len(secs))
	body, dir, err := section.Append(nil, uint64(front), secs)
	if err != nil {
		return nil, err
	}
	file := append(section.AppendDirectory(make([]byte, 0, front+len(body)), magic, dir), body...)
	// Nothing is written that does not decode to what it is to be.
	if back, err := Decode(file, v.Digest, v.Samples); err != nil || back.ID() != v.ID() {
		return nil, fmt.Errorf("the view does not decode to itself: %w", err)
	}
	return file, nil
}

// check refuses what cannot be stored.
func (v *View) check() error {
	switch {
	case v.Subset() && (v.Weights != nil || uint64(len(v.Chosen)) != (v.Samples+7)/8):
		return damage.Errorf("a subset of %d samples with %d bytes and %d weights", v.Samples, len(v.Chosen),
			len(v.Weights))
	case v.Subset() && v.Samples%8 != 0 && v.Chosen[v.Samples/8]>>(v.Samples%8) != 0:
		return damage.Errorf("bits after the bits of %d samples", v.Samples)
	case !v.Subset() && (v.Chosen != nil || uint64(len(v.Weights)) != v.Samples || v.Draws > math.MaxInt64):
		return damage.Errorf("%d draws of %d samples with %d weights", v.Draws, v.Samples, len(v.Weights))
	case v.Classes != nil:
		return v.checkClasses()
	}
	return nil
}

func (v *View) checkClasses() error {
	if v.Subset() || len(v.Classes) == 0 {
		return damage.Errorf("%d draws of %d classes", v.Draws, len(v.Classes))
	}
	total := uint64(0)
	for i, g := range v.Classes {
		if total += g; g == 0 || g >= 1<<63 || total >= 1<<63 {
			return damage.Errorf("class %d has the weight %d, all up to it %d", i+1, g, total)
		}
	}
	known := uint32(0)
	for i, k := range v.Weights {
		if k > known+1 || uint64(k) > uint64(len(v.Classes)) {
			return damage.Errorf("sample %d is of class %d of %d, after samples of %d", i, k, len(v.Classes), known)
		}
		known = max(known, k)
	}
	if uint64(known) != uint64(len(v.Classes)) {
		return damage.Errorf("%d classes, and samples of %d", len(v.Classes), known)
	}
	return nil
}

// Decode decodes the file of a view of the data set with that digest and number of samples. A
// view of other content is ErrMismatch.
func Decode(src []byte, digest format.Hash, samples uint64) (*View, error) {
	v, err := decode(src, digest, samples)
	if err != nil {
		return nil, format.At(0, err)
	}
	return v, nil
}

// Head decodes what a view file has of its view, except Chosen and Weights, whose parts are
// not looked at.
func Head(src []byte) (*View, error) {
	v := &View{}
	dir, err := directory(src)
	if err == nil {
		_, err = v.decodeHead(&dir[0], src[dir[0].Off:][:dir[0].Stored])
	}
	if err != nil {
		return nil, format.At(0, err)
	}
	return v, nil
}

// directory decodes the directory of a view file, which has at least one section.
func directory(src []byte) ([]section.Section, error) {
	dir, err := section.DecodeDirectory(src, magic, func(kind string) bool {
		return kind == kindHead || kind == kindBits || kind == kindClasses || kind == kindWeights
	})
	if err == nil && len(dir.Sections) == 0 {
		err = damage.Errorf("a view without sections")
	}
	if err != nil {
		return nil, err
	}
	return dir.Sections, section.Contiguous(dir.Sections, uint64(section.DirectoryLen(len(dir.Sections))),
		uint64(len(src)))
}

func decode(src []byte, digest format.Hash, samples uint64) (*View, error) {
	dir, err := directory(src)
	if err != nil {
		return nil, err
	}
	v, at, classes := &View{}, 0, uint64(0)
	for i := range dir {
		s := &dir[i]
		stored := src[s.Off : s.Off+uint64(s.Stored)]
		if i == 0 {
			if classes, err = v.decodeHead(s, stored); err != nil {
				return nil, err
			}
			if v.Digest != digest || v.Samples != samples {
				return nil, fmt.Errorf("%w: the view is of %d samples with the digest %s, the data set has %d and %s",
					format.ErrMismatch, v.Samples, format.DigestString(v.Digest), samples, format.DigestString(digest))
			}
			continue
		}
		switch s.Kind {
		case kindClasses:
			if err := v.decodeClasses(s, stored, classes, at); err != nil {
				return nil, err
			}
		case kindHead, kindBits, kindWeights:
			if err := v.decodePart(s, stored, at); err != nil {
				return nil, err
			}
			at++
		}
	}
	if uint64(len(v.Classes)) != classes || v.check() != nil {
		return nil, damage.Errorf("a view without all of its samples, or with classes that are not theirs")
	}
	return v, nil
}

// decodeHead returns the number of classes, too.
func (v *View) decodeHead(s *section.Section, stored []byte) (classes uint64, err error) {
	if s.Kind != kindHead || s.Part != 0 {
		return 0, damage.Errorf("the view begins with section %s, part %d", s.Kind, s.Part)
	}
	raw, err := s.Payload(stored)
	if err != nil {
		return 0, err
	}
	r := section.Reader{Src: raw}
	copy(v.Digest[:], r.Take(len(v.Digest)))
	v.Samples, v.Draws = r.U64(), r.U64()
	if len(r.Src) > 0 && r.Err == nil {
		if classes = r.U64(); classes == 0 {
			return 0, damage.Errorf("a view with 0 classes")
		}
	}
	return classes, r.End()
}

// decodeClasses appends the weights of the next classes, of as many as there are. Parts with
// samples come after them.
func (v *View) decodeClasses(s *section.Section, stored []byte, classes uint64, parts int) error {
	first := uint64(len(v.Classes))
	if uint64(s.Part)*weightsPerPart != first || first >= min(classes, v.Samples) || parts > 0 {
		return damage.Errorf("section %s, part %d, after %d of %d classes of %d samples", s.Kind, s.Part, first,
			classes, v.Samples)
	}
	raw, err := s.Payload(stored)
	if err != nil {
		return err
	}
	column, err := s.Column(raw, int(min(weightsPerPart, classes-first)))
	v.Classes = append(v.Classes, column...)
	return err
}

// decodePart appends the samples of a part, the at-th of the file.
func (v *View) decodePart(s *section.Section, stored []byte, at int) error {
	kind, per := kindWeights, uint64(weightsPerPart)
	if v.Subset() {
		kind, per = kindBits, bitsPerPart
	}
	first := uint64(at) * per
	if s.Kind != kind || s.Part != uint32(at) || first >= v.Samples {
		return damage.Errorf("section %s, part %d, as part %d of a view of %d samples and %d draws", s.Kind, s.Part, at,
			v.Samples, v.Draws)
	}
	n := min(per, v.Samples-first)
	if v.Subset() && uint64(s.Raw) != (n+7)/8 {
		return damage.Errorf("section %s, part %d, has %d bytes for %d samples", s.Kind, s.Part, s.Raw, n)
	}
	raw, err := s.Payload(stored)
	if err != nil {
		return err
	}
	if v.Subset() {
		v.Chosen = append(v.Chosen, raw...)
		return nil
	}
	column, err := s.Column(raw, int(n))
	if err != nil {
		return err
	}
	for i, u := range column {
		if u > math.MaxUint32 {
			return damage.Errorf("sample %d has the weight or the class %d", first+uint64(i), u)
		}
		v.Weights = append(v.Weights, uint32(u))
	}
	return nil
}

// LabelFormat is the value of member "format" in an object that names a view.
const LabelFormat = "shardtool-view/1"

// Label is an object that names a view. Readers rely on Format and View alone; the other
// members tell people what the view is and how it was made.
type Label struct {
	Format string `json:"format"`
	// View is the object name of the view.
	View string `json:"view"`
	// Digest and Of are the digest and the samples of the data set; Tables is the object name of
	// the generation that the view was made on.
	Digest string `json:"digest"`
	Of     uint64 `json:"of"`
	Tables string `json:"tables"`
	// Kind is "subset", "weights" or "classes". Samples is the number of samples of an epoch.
	Kind    string `json:"kind"`
	Samples uint64 `json:"samples"`
	// Made is how the view was made.
	Made map[string]string `json:"made,omitempty"`
}

// Encode returns the only encoding of a label: JSON indented by two spaces, and a newline.
func (l *Label) Encode() []byte {
	b, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		panic("format: view: " + err.Error()) // no value in it can fail
	}
	return append(b, '\n')
}

// MaxLabel bounds the bytes of a label.
const MaxLabel = 1 << 20

// DecodeLabel decodes the object that names a view. It ignores unknown members; another major
// format is ErrVersion.
func DecodeLabel(src []byte) (*Label, error) {
	var l Label
	if err := json.Unmarshal(src, &l); err != nil {
		return nil, damage.Errorf("not the name of a view: %v", err)
	}
	if l.Format != LabelFormat {
		if strings.HasPrefix(l.Format, "shardtool-view/") {
			return nil, fmt.Errorf("%w: it has the format %q, this program reads %q: use a newer shardtool",
				format.ErrVersion, l.Format, LabelFormat)
		}
		return nil, damage.Errorf("not the name of a view: format %q", l.Format)
	}
	if !names.IsView(l.View) {
		return nil, damage.Errorf("it names the view %q", l.View)
	}
	return &l, nil
}
