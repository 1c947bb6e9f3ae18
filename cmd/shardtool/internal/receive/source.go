package receive

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/writer"
)

// Place is a place in the samples of a parent.
type Place struct {
	// Samples precede it.
	Samples int64 `json:"samples"`
	// Input is the number of the parent's input that the last of them belongs to, and Since how many
	// of them do.
	Input int64 `json:"input"`
	Since int64 `json:"since"`
	// Types are the types of the fields of all samples before it.
	Types map[string]string `json:"types"`
	// Stacked reports that the samples are rows.
	Stacked bool `json:"stacked,omitempty"`
}

// Source yields the samples that a parent sends. It is a writer.Splitter whose part is all that the
// parent sends. A sample is valid until the next call of Next.
type Source struct {
	// First is the number in the key of the first sample, for samples that arrive without a key.
	First int64
	// Asked answers STATE. Next calls it. By default it does nothing. Ended is called at END.
	Asked func() error
	Ended func()

	begin *Begin
	ready func(Place) error

	at   Place  // after the sample returned last
	text string // at.Types as JSON; empty: they changed

	from    incoming
	layouts []layout
	cur     frame
	run     run
	columns *columns
	sample  writer.Sample
	arena   []byte // of the sample: arrays of its numbers
	decided bool   // at.Stacked
	err     error
	numbers []byte // of NUMBERS, which rows have not taken
}

var _ writer.Splitter = (*Source)(nil)

// incoming reads frames ahead of the source.
type incoming struct {
	in      io.Reader
	frames  chan frame
	free    chan []byte
	stop    chan struct{}
	started bool
}

// run is the rest of a frame SAMPLES: the bytes rest hold left samples of a layout. inputs counts
// the samples to come of each input, from the input of Source.at on.
type run struct {
	rest   []byte
	layout *layout
	left   uint32
	inputs []uint32
}

// layout is the fields and attributes of samples, in ascending order of the fields' names.
type layout struct {
	Fields []layoutField `json:"fields"`
	Attrs  []layoutAttr  `json:"attrs"`
	known  bool          // types has the types of the fields
}

// layoutField is a field and the word by which shardtool.fields decodes it.
type layoutField struct {
	Name string `json:"name"`
	Type string `json:"type"`
}

type layoutAttr struct {
	Name string `json:"name"`
	Kind string `json:"kind"` // int, float or str
}

// New returns a Source of the frames that follow BEGIN. ready is called once, before the first
// sample is read, with the place up to which the store has the samples. known are the types of
// fields of earlier samples, as in a data set that is appended to.
func New(begin *Begin, in io.Reader, known map[string]string, ready func(Place) error) *Source {
	s := &Source{begin: begin, ready: ready, at: Place{Types: map[string]string{}},
		from: incoming{in: in, stop: make(chan struct{})}}
	s.Asked, s.Ended = func() error { return nil }, func() {}
	s.at.Stacked, s.decided = begin.Layout == writer.LayoutStacked.String(), begin.Layout != ""
	maps.Copy(s.at.Types, known)
	return s
}

// start tells the parent where to begin, and receives ahead.
func (s *Source) start() error {
	s.from.started = true
	if err := s.ready(s.at); err != nil {
		return err
	}
	const ahead = 3
	s.from.frames, s.from.free = make(chan frame, ahead), make(chan []byte, ahead+1)
	go func() {
		defer close(s.from.frames)
		for {
			var buf []byte
			select {
			case buf = <-s.from.free:
			default:
			}
			f, err := readFrame(s.from.in, buf)
			if err == nil && f.kind == kindShared {
				select {
				case s.from.free <- f.body:
				default:
				}
				f, err = s.begin.Shared.frame(f.body)
			}
			f.err = err
			select {
			case s.from.frames <- f:
			case <-s.from.stop:
				return
			}
			if err != nil || f.kind == kindEnd {
				return
			}
		}
	}()
	return nil
}

// Next implements writer.Source.
func (s *Source) Next(ctx context.Context) (writer.Sample, error) {
	if s.err == nil && !s.from.started {
		s.err = s.start()
	}
	for s.err == nil {
		switch {
		case s.run.left > 0:
			if s.err = s.takeSample(); s.err == nil {
				return s.sample, nil
			}
		case len(s.run.rest) > 0:
			s.err = s.takeRun()
		case s.columns != nil && s.columns.next < s.columns.rows:
			if s.err = s.columns.row(s); s.err == nil {
				return s.sample, nil
			}
		default:
			s.err = s.nextFrame(ctx)
		}
	}
	return writer.Sample{}, s.err
}

// nextFrame waits for the next frame.
func (s *Source) nextFrame(ctx context.Context) error {
	s.columns = nil
	s.begin.Shared.release(&s.cur)
	if cap(s.cur.body) > 0 && cap(s.cur.body) <= 4*step {
		select {
		case s.from.free <- s.cur.body:
		default:
		}
	}
	var ok bool
	select {
	case s.cur, ok = <-s.from.frames:
	case <-ctx.Done():
		return ctx.Err()
	}
	if !ok {
		return ErrLeft
	}
	if s.cur.err != nil {
		return s.cur.err
	}
	switch s.cur.kind {
	case kindLayout:
		return s.addLayout(s.cur.body)
	case kindSamples:
		s.run.rest = s.cur.body
		return nil
	case kindColumns:
		c, err := openColumns(s.cur.body)
		if err != nil {
			return err
		}
		s.columns = c
		if c.next < c.rows {
			s.decide(c.stackable())
		}
		return nil
	case kindEnd:
		s.Ended()
		return io.EOF
	case kindNumbers:
		if len(s.cur.body)%8 != 0 {
			return fmt.Errorf("%w: NUMBERS of %d bytes", ErrProtocol, len(s.cur.body))
		}
		s.numbers = append(s.numbers[:0], s.cur.body...)
		return nil
	case kindState:
		return s.Asked()
	}
	return fmt.Errorf("%w: a second BEGIN", ErrProtocol)
}

func (s *Source) addLayout(body []byte) error {
	var l layout
	if err := json.Unmarshal(body, &l); err != nil {
		return fmt.Errorf("%w: LAYOUT: %w", ErrProtocol, err)
	}
	for _, a := range l.Attrs {
		if !slices.Contains([]string{"int", "float", "str"}, a.Kind) {
			return fmt.Errorf("%w: LAYOUT: attribute %q of kind %q", ErrProtocol, a.Name, a.Kind)
		}
	}
	s.layouts = append(s.layouts, l)
	return nil
}

// absent is the length of a key that the parent left out.
const absent = math.MaxUint32

// takeRun takes the beginning of a run, or the numbers of samples of inputs.
func (s *Source) takeRun() error {
	const head = 8
	if len(s.run.rest) < head {
		return fmt.Errorf("%w: a run of %d bytes", ErrProtocol, len(s.run.rest))
	}
	number, count := binary.LittleEndian.Uint32(s.run.rest), binary.LittleEndian.Uint32(s.run.rest[4:])
	s.run.rest = s.run.rest[head:]
	if number == absent {
		return s.takeInputs(int64(count))
	}
	if int64(number) >= int64(len(s.layouts)) {
		return fmt.Errorf("%w: samples of layout %d, of %d", ErrProtocol, number, len(s.layouts))
	}
	s.run.layout, s.run.left = &s.layouts[number], count
	return nil
}

// takeInputs takes the numbers of samples of n inputs. The first may be the current input, whose
// earlier samples are not counted.
func (s *Source) takeInputs(n int64) error {
	const word, head = 4, 8
	if int64(len(s.run.rest)) < head+word*n {
		return fmt.Errorf("%w: %d inputs in %d bytes", ErrProtocol, n, len(s.run.rest))
	}
	if first := int64(binary.LittleEndian.Uint64(s.run.rest) & math.MaxInt64); first != s.at.Input {
		s.at.Input, s.at.Since = first, 0
	}
	s.run.rest, s.run.inputs = s.run.rest[head:], s.run.inputs[:0]
	for range n {
		s.run.inputs, s.run.rest = append(s.run.inputs, binary.LittleEndian.Uint32(s.run.rest)), s.run.rest[word:]
	}
	return nil
}

// enterInput moves to the input of the next sample.
func (s *Source) enterInput() {
	for len(s.run.inputs) > 1 && s.run.inputs[0] == 0 {
		s.run.inputs = s.run.inputs[1:]
		s.at.Input, s.at.Since = s.at.Input+1, 0
	}
	if len(s.run.inputs) > 0 && s.run.inputs[0] > 0 {
		s.run.inputs[0]--
	}
}

// takeSample takes the next sample of a run.
func (s *Source) takeSample() error {
	b, l := s.run.rest, s.run.layout
	head := 4 + 4*(len(l.Fields)+len(l.Attrs))
	if len(b) < head {
		return fmt.Errorf("%w: a sample of %d bytes", ErrProtocol, len(b))
	}
	lengths, data, short := b[4:head], b[head:], false
	take := func(n uint32) (part []byte) {
		if short = short || uint64(n) > uint64(len(data)); short {
			return nil
		}
		part, data = data[:n:n], data[n:]
		return part
	}
	keyLen := binary.LittleEndian.Uint32(b)
	s.beginSample(keyLen == absent)
	if keyLen != absent {
		s.sample.Key = string(take(keyLen))
	}
	for i := range l.Fields {
		s.sample.Fields = append(s.sample.Fields,
			writer.Field{Name: l.Fields[i].Name, Data: take(binary.LittleEndian.Uint32(lengths[4*i:]))})
	}
	for i, a := range l.Attrs {
		text := take(binary.LittleEndian.Uint32(lengths[4*(len(l.Fields)+i):]))
		if short {
			break
		}
		if err := s.addAttr(a.Name, a.Kind, text); err != nil {
			return err
		}
	}
	if short {
		return fmt.Errorf("%w: the fields of a sample exceed its frame", ErrProtocol)
	}
	if s.decide(false); s.at.Stacked {
		if err := s.arrays(); err != nil {
			return err
		}
	}
	if !l.known {
		for _, f := range l.Fields {
			s.know(f.Name, f.Type)
		}
		l.known = true
	}
	s.run.rest = data
	s.run.left--
	s.count()
	return nil
}

// count counts a sample that was taken.
func (s *Source) count() {
	s.at.Samples++
	s.at.Since++
}

// beginSample begins a sample. Its key is the running number if it has none.
func (s *Source) beginSample(numbered bool) {
	s.enterInput()
	s.sample.Fields, s.sample.Attrs, s.sample.Key = s.sample.Fields[:0], s.sample.Attrs[:0], ""
	if numbered {
		s.sample.Key = s.numberedKey()
	}
	s.sample.Row = s.at.Samples + 1
	if len(s.numbers) > 0 {
		s.sample.Row = int64(binary.LittleEndian.Uint64(s.numbers)) + 1
		s.numbers = s.numbers[8:]
	}
}

func (s *Source) numberedKey() string {
	digits := strconv.FormatInt(s.First+s.at.Samples, 10)
	const width = 9
	return s.begin.KeyPrefix + strings.Repeat("0", max(0, width-len(digits))) + digits
}

// know records the type of a field that a sample has.
func (s *Source) know(name, kind string) {
	if s.at.Types[name] != kind {
		s.at.Types[name], s.text = kind, ""
	}
}

func (s *Source) addAttr(name, kind string, text []byte) error {
	v := format.AttrValue{Attribute: format.Attribute{Name: name}}
	var err error
	switch kind {
	case "int":
		v.Kind = format.AttrInteger
		v.Integer, err = strconv.ParseInt(string(text), 10, 64)
	case "float":
		v.Kind = format.AttrNumber
		v.Number, err = strconv.ParseFloat(string(text), 64)
	default:
		v.Kind, v.Label = format.AttrLabel, string(text)
	}
	if err != nil {
		return fmt.Errorf("%w: attribute %q: %w", ErrProtocol, name, err)
	}
	s.sample.Attrs = append(s.sample.Attrs, v)
	return nil
}

// Cursor returns the place after the sample returned last. It includes the types, because a run
// that continues there cannot learn them from its samples.
func (s *Source) Cursor() string {
	stacked := ""
	if s.at.Stacked {
		stacked = `,"stacked":true`
	}
	return fmt.Sprintf(`{"samples":%d,"input":%d,"since":%d,"types":%s%s}`, s.at.Samples, s.at.Input, s.at.Since,
		s.typesText(), stacked)
}

// typesText returns the types as JSON.
func (s *Source) typesText() string {
	if s.text == "" {
		text, err := json.Marshal(s.at.Types)
		if err != nil {
			panic("receive: types: " + err.Error()) // a map of strings
		}
		s.text = string(text)
	}
	return s.text
}

// Seek moves to a cursor. It can be called before the first call of Next only.
func (s *Source) Seek(_ context.Context, cursor string) error {
	var at Place
	err := json.Unmarshal([]byte(cursor), &at)
	if err != nil || s.from.started || at.Types == nil || at.Input < 0 || at.Since < 0 || at.Samples < at.Since {
		return fmt.Errorf("cursor %q is not one of samples from a program", cursor)
	}
	if s.begin.Layout != "" {
		at.Stacked = s.at.Stacked
	}
	s.at, s.text = at, ""
	s.decided = s.decided || at.Samples > 0
	return nil
}

// Fingerprint covers the name that the parent gives its source, and the schema. The samples
// themselves are not known in advance.
func (s *Source) Fingerprint() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q", s.begin.Source, s.begin.Schema))
	return fmt.Sprintf("program:%x", sum[:16])
}

// Meta implements writer.Source. Learned has the types.
func (s *Source) Meta() format.Metadata { return nil }

// Learned returns the types of the fields, for the metadata of the data set.
func (s *Source) Learned() format.Metadata {
	return format.Metadata{writer.MetaTypes: s.typesText()}
}

// Total implements writer.Source.
func (s *Source) Total() (samples, bytes int64) { return 0, 0 }

// Split implements writer.Splitter: each part has its own parent, which sends only that part.
func (s *Source) Split(_, _ int) error { return nil }

// Close implements writer.Source. A goroutine ends once its read does.
func (s *Source) Close() error {
	if s.from.started {
		close(s.from.stop)
		s.from.started = false
	}
	if l := s.begin.Layer; l == nil || !l.Parts { // the next shard uses the memory
		s.begin.Shared.close()
	}
	return nil
}
