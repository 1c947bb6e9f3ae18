package writer

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"os"

	"golang.org/x/sync/errgroup"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/samplekey"
	"github.com/shardtool/shardtool/internal/sys/keysort"
	"github.com/shardtool/shardtool/internal/sys/spill"
)

// intake reads rows of a source and passes their records on, in their order. Payloads that are not
// in memory are read several at once.
type intake struct {
	src Source
	// take gets a row, its record, and how many rows the source has given or left out before it.
	take func(r *layerRow, rec []byte, before uint64) error
	// sparse accepts samples that have none of the fields, and bare samples that have no field.
	sparse  bool
	bare    bool
	workers int
	stacks  *layouts
	left    int64 // rows that the source left out
	count   uint64
	last    uint64 // the row that was read last, counted from 1 by the source

	arena  []byte
	ends   []int
	before []uint64
	fills  []fill
	row    layerRow
}

// intakeMemory is how many bytes of rows are read at once.
const intakeMemory = 8 << 20

// maxLayerRow bounds a row in bytes, because rows are sorted in memory piece by piece.
const maxLayerRow = 1 << 30

// next reads one row, and reports whether there was one.
func (in *intake) next(ctx context.Context) (bool, error) {
	s, err := in.src.Next(ctx)
	if errors.Is(err, io.EOF) {
		return false, nil
	}
	before := in.count
	in.count++
	var se *SampleError
	switch {
	case errors.As(err, &se) && (se.LeaveOut || in.sparse && !errors.Is(err, format.ErrCorrupt) && ctx.Err() == nil):
		in.left++
		return true, nil
	case err != nil:
		return false, err
	}
	if nothing(&s) || in.bare && len(s.Fields) == 0 { // of another layer, or of a program
		in.left++
		return true, nil
	}
	if err = checkLayerRow(&s); err != nil {
		return false, s.failed(err)
	}
	at := len(in.arena)
	in.before, in.last = append(in.before, before), uint64(s.Row)
	var fills []fill
	in.arena, fills = appendRow(in.arena, &s)
	in.fills, in.ends = append(in.fills, fills...), append(in.ends, len(in.arena))
	if len(in.arena) >= intakeMemory || len(in.arena)-at > intakeMemory/2 {
		err = in.flush(ctx)
	}
	return true, err
}

// nothing reports whether a sample is one to which a layer adds nothing.
func nothing(s *Sample) bool {
	return len(s.Fields) == 1 && s.Fields[0].Name == "" && s.Fields[0].size() == 0
}

func checkLayerRow(s *Sample) error {
	total := int64(0)
	for i := range s.Fields {
		f := &s.Fields[i]
		if f.Name == "" {
			return fmt.Errorf("%w: a field without a name stands for samples without a value in a layer: give the field a name", format.ErrName)
		}
		if total += max(f.size(), 0); total > maxLayerRow {
			return fmt.Errorf("%w: a row of a layer has at most %d bytes", format.ErrTooLarge, int64(maxLayerRow))
		}
	}
	key := s.Key
	s.Key = "k" // a row without a key, or with one that no sample can have, is found later
	err := checkSample(s)
	s.Key = key
	return err
}

// flush passes on the rows that were read.
func (in *intake) flush(ctx context.Context) error {
	var group errgroup.Group
	group.SetLimit(4 * in.workers)
	for _, f := range in.fills {
		group.Go(func() error { return f.from.ReadInto(ctx, in.arena[f.off:f.off+f.size]) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	begin := 0
	for i, end := range in.ends {
		rec := in.arena[begin:end]
		begin = end
		if err := in.row.decode(rec); err != nil {
			return err
		}
		in.row.layout = in.stacks.of(&in.row)
		binary.LittleEndian.PutUint32(rec, in.row.layout)
		if err := in.take(&in.row, rec, in.before[i]); err != nil {
			return err
		}
	}
	in.arena, in.ends, in.before, in.fills = in.arena[:0], in.ends[:0], in.before[:0], in.fills[:0]
	return nil
}

// join finds the samples of rows by their keys: rows are written to a temporary file one after the
// other, and their key hashes are sorted and merged with the base's.
type join struct {
	dir    string
	memory int64
	file   *os.File
	out    *bufio.Writer
	size   uint64
	byHash *keysort.Sorter[samplekey.Entry] // hash of the key, place of the row in the file
	byRow  *keysort.Sorter[samplekey.Entry] // place of the row, number of the sample
	shift  int                              // of places in byRow, whose sorter wants their high bits to differ
}

func newJoin(dir string, memory int64) (*join, error) {
	file, err := spill.Create(dir)
	if err != nil {
		return nil, err
	}
	return &join{dir: dir, memory: memory, file: file, out: bufio.NewWriterSize(file, 256<<10),
		byHash: keysort.New[samplekey.Entry](dir, memory/2)}, nil
}

func (j *join) close() {
	for _, s := range []*keysort.Sorter[samplekey.Entry]{j.byHash, j.byRow} {
		if s != nil {
			_ = s.Close()
		}
	}
	_ = spill.Close(j.file)
}

// add adds a row.
func (j *join) add(r *layerRow, rec []byte, _ uint64) error {
	var head [binary.MaxVarintLen64]byte
	n := binary.PutUvarint(head[:], uint64(len(rec)))
	_, _ = j.out.Write(head[:n]) // the first failure sticks
	if _, err := j.out.Write(rec); err != nil {
		return fmt.Errorf("writing a temporary file for sorting: %w", err)
	}
	err := j.byHash.Add(samplekey.Entry{Hash: samplekey.Hash(r.Key), Number: j.size})
	j.size += uint64(n + len(rec))
	return err
}

// at reads the row at a place of the file.
func (j *join) at(place uint64) (*layerRow, error) {
	rec, err := readRecord(bufio.NewReader(io.NewSectionReader(j.file, int64(place), int64(j.size-place))), nil)
	if err != nil {
		return nil, err
	}
	r := &layerRow{}
	return r, r.decode(rec)
}

// match merges the rows with the entries of the base's keys table. unknown is called for each row
// whose key no sample has, and wanted decides whether a row of a sample is kept. A key that two
// rows have is an error with both places.
func (j *join) match(base func() (samplekey.Entry, bool, error), wanted func(number uint64) (bool, error),
	unknown func(*layerRow) error) error {
	if err := j.out.Flush(); err != nil {
		return fmt.Errorf("writing a temporary file for sorting: %w", err)
	}
	j.byRow, j.shift = keysort.New[samplekey.Entry](j.dir, j.memory/2), bits.LeadingZeros64(j.size)
	of, more, err := base()
	var last samplekey.Entry
	var numbers []uint64 // of samples with the hash of last
	first := true
	for e, rerr := range j.byHash.All() {
		if rerr != nil {
			return rerr
		}
		if !first && e.Hash == last.Hash {
			if err := j.differ(last.Number, e.Number); err != nil {
				return err
			}
		} else {
			for more && err == nil && of.Hash < e.Hash {
				of, more, err = base()
			}
			for numbers = numbers[:0]; more && err == nil && of.Hash == e.Hash; of, more, err = base() {
				numbers = append(numbers, of.Number)
			}
			if err != nil {
				return err
			}
		}
		last, first = e, false
		if len(numbers) == 0 {
			r, err := j.at(e.Number)
			if err == nil {
				err = unknown(r)
			}
			if err != nil {
				return err
			}
		}
		for _, n := range numbers {
			keep, err := wanted(n)
			if err == nil && keep {
				err = j.byRow.Add(samplekey.Entry{Hash: e.Number << j.shift, Number: n})
			}
			if err != nil {
				return err
			}
		}
	}
	_ = j.byHash.Close()
	j.byHash = nil
	return nil
}

// differ returns an error: two rows with one hash have one key.
func (j *join) differ(x, y uint64) error {
	a, err := j.at(x)
	if err != nil {
		return err
	}
	b, err := j.at(y)
	if err != nil {
		return err
	}
	if a.Key != b.Key {
		return b.failed(fmt.Errorf("%w: it has the key hash of %q (%s): give one of the rows in another layer",
			format.ErrMismatch, a.Key, a.place()))
	}
	return b.failed(fmt.Errorf("%w key: the source has it before, in %s: keep one of the rows", format.ErrDuplicate,
		a.place()))
}

// each yields the rows that match kept, in the order of the source, once for each of their samples.
func (j *join) each(yield func(number uint64, rec []byte) error) error {
	if _, err := j.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	from, at, begin := bufio.NewReaderSize(j.file, 256<<10), uint64(0), uint64(0)
	var rec []byte
	var head [binary.MaxVarintLen64]byte
	for e, err := range j.byRow.All() {
		if err != nil {
			return err
		}
		if place := e.Hash >> j.shift; rec == nil || begin != place {
			if _, err := from.Discard(int(place - at)); err != nil {
				return fmt.Errorf("temporary file for sorting: %w", err)
			}
			if rec, err = readRecord(from, rec); err != nil {
				return err
			}
			begin, at = place, place+uint64(binary.PutUvarint(head[:], uint64(len(rec)))+len(rec))
		}
		if err := yield(e.Number, rec); err != nil {
			return err
		}
	}
	return nil
}
