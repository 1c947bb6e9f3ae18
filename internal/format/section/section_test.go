package section

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/codec"
)

const magic = "TESTMAGC"

func known(kind string) bool { return kind != "NEW1" }

// file returns a directory with its sections after it, and the sections.
func file(t *testing.T, secs []Raw) (src []byte, dir []Section) {
	t.Helper()
	body, dir, err := Append(nil, uint64(DirectoryLen(len(secs))), secs)
	if err != nil {
		t.Fatal(err)
	}
	return append(AppendDirectory(nil, magic, dir), body...), dir
}

func someSections() []Raw {
	repeated := bytes.Repeat([]byte("0123456789"), 1000)
	return []Raw{
		{Kind: "TEXT", Critical: true, Raw: repeated, Cuts: []int{5000}},
		{Kind: "TINY", Part: 7, Raw: []byte{1, 2, 3}},
		Column("NUMB", 0, true, []uint64{1, 300, 300, 1, 1 << 40}),
		{Kind: "NONE"},
	}
}

// TestDirectory reads sections back: large ones are compressed, all are contiguous.
func TestDirectory(t *testing.T) {
	secs := someSections()
	src, wrote := file(t, secs)
	d, err := DecodeDirectory(src, magic, known)
	dir := d.Sections
	if err != nil || !slices.Equal(dir, wrote) {
		t.Fatalf("%+v: %v", dir, err)
	}
	if err := Contiguous(dir, uint64(DirectoryLen(len(dir))), uint64(len(src))); err != nil {
		t.Error(err)
	}
	if d.Find("TINY", 7) != &dir[1] || d.Find("TINY", 8) != nil {
		t.Errorf("%+v", d)
	}
	for i := range dir {
		s := &dir[i]
		raw, err := s.Payload(src[s.Off:][:s.Stored])
		if err != nil || !bytes.Equal(raw, secs[i].Raw) || secs[i].StoredLen() != int(s.Stored) {
			t.Errorf("section %s: %d bytes: %v", s.Kind, len(raw), err)
		}
	}
	if dir[0].Codec != format.CodecZstd || dir[0].Stored > 200 || dir[1].Codec != format.CodecBytes {
		t.Errorf("stored as %+v", dir[:2])
	}
}

// TestDirectoryDamage flips each bit of a directory and cuts it at each length.
func TestDirectoryDamage(t *testing.T) {
	src, dir := file(t, someSections())
	src = src[:DirectoryLen(len(dir))]
	for i := range 8 * len(src) {
		bad := bytes.Clone(src)
		bad[i/8] ^= 1 << (i % 8)
		if _, err := DecodeDirectory(bad, magic, known); !errors.Is(err, format.ErrCorrupt) && !errors.Is(err, format.ErrVersion) {
			t.Fatalf("bit %d: %v", i, err)
		}
	}
	for n := range src {
		if _, err := DecodeDirectory(src[:n], magic, known); !errors.Is(err, format.ErrCorrupt) {
			t.Fatalf("%d bytes: %v", n, err)
		}
	}
}

// TestForged gives rows of a directory values that no writer gives, with a valid checksum.
func TestForged(t *testing.T) {
	src, dir := file(t, someSections())
	src = src[:DirectoryLen(len(dir))]
	forge := func(at int, v ...byte) error {
		bad := bytes.Clone(src[:len(src)-4])
		copy(bad[at:], v)
		_, err := DecodeDirectory(binary.LittleEndian.AppendUint32(bad, codec.Checksum(bad)), magic, known)
		return err
	}
	first := DirHeaderLen
	for name, c := range map[string]struct {
		err  error
		want error
	}{
		"nothing":          {forge(0), nil},
		"codec":            {forge(first+5, 9), format.ErrVersion},
		"encoding":         {forge(first+6, 2), format.ErrVersion},
		"flags":            {forge(first+4, 3), format.ErrCorrupt},
		"reserved":         {forge(first+7, 1), format.ErrCorrupt},
		"most raw bytes":   {forge(first+24, 0xff, 0xff, 0xff, 0xff), format.ErrCorrupt},
		"major":            {forge(8, 9), format.ErrVersion},
		"unknown":          {forge(first+DirEntryLen, []byte("NEW1")...), nil},
		"unknown, needed":  {forge(first, []byte("NEW1")...), format.ErrVersion},
		"sections":         {forge(12, 0xff, 0xff, 0xff, 3), format.ErrCorrupt},
		"too many of them": {forge(12, 0xff, 0xff, 0xff, 0xff), format.ErrCorrupt},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%s: %v", name, c.err)
		}
	}
	twice := []Section{{Kind: "TEXT"}, {Kind: "TEXT"}}
	if _, err := DecodeDirectory(AppendDirectory(nil, magic, twice), magic, known); !errors.Is(err, format.ErrCorrupt) {
		t.Errorf("a section twice: %v", err)
	}
	for name, edit := range map[string]func(d []Section){
		"gap":      func(d []Section) { d[1].Off++ },
		"overlap":  func(d []Section) { d[2].Off-- },
		"too long": func(d []Section) { d[0].Stored = 1 << 31 },
		"missing":  func(d []Section) { d[2].Stored-- },
	} {
		d := slices.Clone(dir)
		edit(d)
		last := dir[len(dir)-1]
		if err := Contiguous(d, dir[0].Off, last.Off+uint64(last.Stored)); !errors.Is(err, format.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestPayloadDamage flips each byte of stored sections, and claims more than they hold.
func TestPayloadDamage(t *testing.T) {
	src, dir := file(t, someSections())
	for i := range dir {
		s := dir[i]
		stored := src[s.Off:][:s.Stored]
		for at := range stored {
			bad := bytes.Clone(stored)
			bad[at] ^= 0x10
			if _, err := s.Payload(bad); !errors.Is(err, format.ErrCorrupt) {
				t.Fatalf("section %s, byte %d: %v", s.Kind, at, err)
			}
		}
		if _, err := s.Payload(append(bytes.Clone(stored), 0)); !errors.Is(err, format.ErrCorrupt) {
			t.Errorf("section %s with a byte more: %v", s.Kind, err)
		}
	}
	s := dir[0]
	for _, raw := range []uint32{0, s.Raw - 1, s.Raw + 1, 1 << 31} {
		of := s
		of.Raw = raw
		if _, err := of.Payload(src[s.Off:][:s.Stored]); !errors.Is(err, format.ErrCorrupt) {
			t.Errorf("%d raw bytes: %v", raw, err)
		}
	}
}

// TestColumns reads integers back in both encodings, and refuses each with a byte more or less.
func TestColumns(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	wide := make([]uint64, 1000)
	for i := range wide {
		wide[i] = random.Uint64() >> random.IntN(64)
	}
	for name, v := range map[string][]uint64{"none": {}, "zeros": make([]uint64, 50), "few": {5, 5, 1 << 63, 0, 5}, "wide": wide} {
		for _, c := range []Raw{{Kind: "COLU", Raw: AppendPlanes(nil, v, nil)}, {Kind: "COLU", Encoding: EncodingDictionary}, Column("COLU", 0, true, v)} {
			if c.Raw == nil && c.Encoding == EncodingDictionary {
				dict := Dictionary(v)
				if len(dict) == 0 {
					continue // none, or more than 256
				}
				c.Raw = AppendDictionary(nil, v, dict)
			}
			s := Section{Kind: c.Kind, Encoding: c.Encoding}
			if got, err := s.Column(c.Raw, len(v)); err != nil || !slices.Equal(got, v) {
				t.Fatalf("%s, encoding %d: %v", name, c.Encoding, err)
			}
			if _, err := s.Column(append(slices.Clone(c.Raw), 0), len(v)); !errors.Is(err, format.ErrCorrupt) {
				t.Errorf("%s, encoding %d, a byte more: %v", name, c.Encoding, err)
			}
			for n := range c.Raw {
				if _, err := s.Column(c.Raw[:n], len(v)); !errors.Is(err, format.ErrCorrupt) {
					t.Fatalf("%s, encoding %d, %d bytes: %v", name, c.Encoding, n, err)
				}
			}
		}
	}
}

// TestStrings reads front-coded texts back. A bound stops few bytes from naming much.
func TestStrings(t *testing.T) {
	texts := []string{"", "a", "a", "abc", "abd/é", "b\xff", strings.Repeat("b", 70_000)}
	raw := AppendStrings(nil, texts, nil)
	if got, err := DecodeStrings(raw, len(texts), 1<<20); err != nil || !slices.Equal(got, texts) {
		t.Fatalf("%q: %v", got, err)
	}
	if _, err := DecodeStrings(raw, len(texts), 70_000); !errors.Is(err, format.ErrCorrupt) {
		t.Errorf("more than the bound: %v", err)
	}
	for _, n := range []int{0, 1, len(texts) - 1, len(texts) + 1, 1 << 30} {
		if _, err := DecodeStrings(raw, n, 1<<20); !errors.Is(err, format.ErrCorrupt) {
			t.Errorf("%d texts: %v", n, err)
		}
	}
}

// TestMetadata reads keys and values back, and refuses them out of order.
func TestMetadata(t *testing.T) {
	m := format.Metadata{"b": "2", "a": "", "": "é"}
	raw := AppendMetadata(nil, m)
	if got, err := DecodeMetadata(raw); err != nil || !reflect.DeepEqual(got, m) {
		t.Errorf("%v: %v", got, err)
	}
	for n := range raw {
		if _, err := DecodeMetadata(raw[:n]); !errors.Is(err, format.ErrCorrupt) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	one := AppendMetadata(nil, format.Metadata{"a": "x"})[4:]
	twice := slices.Concat([]byte{2, 0, 0, 0}, one, one)
	if _, err := DecodeMetadata(twice); !errors.Is(err, format.ErrCorrupt) {
		t.Errorf("a key twice: %v", err)
	}
}
