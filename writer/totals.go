package writer

import (
	"maps"
	"slices"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/internal/format/samplekey"
	"github.com/shardtool/shardtool/internal/sys/keysort"
)

// totals adds up a generation: the emitter fills it shard by shard, Commit from the manifests of
// parts. It is read once the pipeline has ended.
type totals struct {
	entries []metadata.ShardEntry // of this generation's own shards
	fields  map[string]*format.FieldTotal
	attrs   map[string]format.AttrKind
	// values are the totals of integer attributes; nil for one whose total cannot be known, because
	// an older program wrote a part of the samples.
	values  map[string]*metadata.AttrTotal
	keys    *keysort.Sorter[samplekey.Entry] // (key hash, sample number) of this generation's own samples
	numbers uint64                           // number of the next sample, counted from the generation appended to
	// tabled names the shards of parts whose keys were added to keys, numbered ones too; numbered
	// reports that the numbered keys of all other shards were added.
	tabled   map[string]bool
	numbered bool
	lists    quarantine
	prog     Progress
}

// newTotals returns totals that begin with the totals of base, the generation appended to. base may
// be nil. The caller closes them.
func newTotals(opt *Options, base *metadata.Manifest) *totals {
	t := &totals{fields: map[string]*format.FieldTotal{}, attrs: map[string]format.AttrKind{},
		values: map[string]*metadata.AttrTotal{}}
	t.lists = newQuarantine(opt.TempDir)
	t.keys = keysort.New[samplekey.Entry](opt.TempDir, min(64<<20, opt.Memory/4))
	if base != nil {
		for _, f := range base.Fields {
			t.fields[f.Name] = &f
		}
		for _, a := range base.Attributes {
			t.attrs[a.Name] = a.Kind
		}
		t.addValues(base)
		t.numbers = metadata.SumSamples(base.Shards)
	}
	return t
}

func (t *totals) close() error {
	t.lists.close()
	return t.keys.Close()
}

// rows counts one sample without its key.
func (t *totals) rows(fields []format.FieldSize, attrs []format.AttrValue) error {
	for _, f := range fields {
		t.field(f.Name, uint64(f.Size))
	}
	for _, a := range attrs {
		if err := t.attribute(a.Attribute); err != nil {
			return err
		}
		if sum := t.valuesOf(a.Attribute); sum != nil {
			sum.Add(a.Integer)
		}
	}
	t.prog.Samples++
	return nil
}

// field counts one payload.
func (t *totals) field(name string, size uint64) {
	t.add(format.FieldTotal{Name: name, Samples: 1, Bytes: size, Min: size, Max: size})
	t.prog.PayloadBytes += int64(size)
}

// add adds the total of a field over other samples.
func (t *totals) add(f format.FieldTotal) {
	sum := t.fields[f.Name]
	if sum == nil {
		first := f // f itself stays off the heap: this runs for every field of every sample
		t.fields[f.Name] = &first
		return
	}
	sum.Samples += f.Samples
	sum.Bytes += f.Bytes
	sum.Min, sum.Max = min(sum.Min, f.Min), max(sum.Max, f.Max)
}

func (t *totals) attribute(a format.Attribute) error {
	err := sameKind(t.attrs, a)
	if err == nil {
		t.attrs[a.Name] = a.Kind
	}
	return err
}

// valuesOf returns the total of an attribute; nil if it has none.
func (t *totals) valuesOf(a format.Attribute) *metadata.AttrTotal {
	if a.Kind != format.AttrInteger {
		return nil
	}
	sum, known := t.values[a.Name]
	if !known {
		sum = &metadata.AttrTotal{Name: a.Name}
		t.values[a.Name] = sum
	}
	return sum
}

// addValues adds the totals of the integer attributes of other samples.
func (t *totals) addValues(m *metadata.Manifest) {
	for _, a := range m.Attributes {
		i := slices.IndexFunc(m.AttrTotals, func(o metadata.AttrTotal) bool { return o.Name == a.Name })
		switch sum := t.valuesOf(a); {
		case sum == nil:
		case i < 0:
			t.values[a.Name] = nil
		default:
			sum.Merge(&m.AttrTotals[i])
		}
	}
}

// shardKeys gives the samples of a shard the next numbers, and adds their keys to the keys table.
// Numbered ones are added by numberedKeys, if there is to be a table.
func (t *totals) shardKeys(keys *metadata.KeyColumn) error {
	if keys.Ranges() != nil {
		t.numbers += uint64(keys.Len())
		return nil
	}
	for _, k := range keys.All() {
		if err := t.keys.Add(samplekey.Entry{Hash: samplekey.Hash(k), Number: t.numbers}); err != nil {
			return err
		}
		t.numbers++
	}
	return nil
}

// numberedKeys adds the numbered keys of shards to the keys table. It leaves out shards for which
// known returns true.
func (t *totals) numberedKeys(shards []metadata.ShardEntry, known func(shard int) bool) error {
	number := uint64(0)
	for i := range shards {
		s := &shards[i]
		if s.Numbered != nil && !known(i) {
			keys := metadata.NumberedKeys(s.Numbered)
			for k, key := range keys.All() {
				if err := t.keys.Add(samplekey.Entry{Hash: samplekey.Hash(key), Number: number +
					uint64(k)}); err != nil {
					return err
				}
			}
		}
		number += s.Samples
	}
	return nil
}

// allNumbered reports whether keys are found without a keys table: all are numbered.
func allNumbered(shards []metadata.ShardEntry) bool {
	for i := range shards {
		if shards[i].Samples > 0 && shards[i].Numbered == nil {
			return false
		}
	}
	return true
}

// describe fills in the shards, fields and attributes of m.
func (t *totals) describe(m *metadata.Manifest) {
	m.Shards = append(m.Shards, t.entries...)
	for _, name := range slices.Sorted(maps.Keys(t.fields)) {
		m.Fields = append(m.Fields, *t.fields[name])
	}
	for _, name := range slices.Sorted(maps.Keys(t.attrs)) {
		m.Attributes = append(m.Attributes, format.Attribute{Name: name, Kind: t.attrs[name]})
	}
	for _, name := range slices.Sorted(maps.Keys(t.values)) {
		if sum := t.values[name]; sum != nil {
			m.AttrTotals = append(m.AttrTotals, *sum)
		}
	}
}
