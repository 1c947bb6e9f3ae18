package curate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
	"github.com/shardtool/shardtool/writer/source/lines"
	"github.com/shardtool/shardtool/writer/source/parquet"
)

// Scores are weights by key in a file: Parquet, CSV, TSV or JSON Lines with the columns key and
// value, in any order of rows. A key may be there once.
type Scores struct {
	// Name is the file's.
	Name string
}

// IsScores reports whether Scores can read a file of that name.
func IsScores(name string) bool {
	return slices.Contains([]string{".parquet", ".csv", ".tsv", ".jsonl", ".ndjson"}, path.Ext(name))
}

// The columns of a file of scores.
const keyColumn, valueColumn = "key", "value"

func (s *Scores) open(ctx context.Context) (writer.Source, error) {
	in, err := source.LocalInput(s.Name)
	if err != nil {
		return nil, fmt.Errorf("scores: %w", err)
	}
	if strings.HasSuffix(s.Name, ".parquet") {
		p, err := parquet.New(ctx, []source.Input{in}, parquet.Options{Key: keyColumn, Columns: []string{valueColumn},
			Nulls: source.NullsSkip})
		if errors.Is(err, writer.ErrOptions) {
			err = s.columns(err)
		}
		return p, err
	}
	l, err := lines.New(ctx, []source.Input{in}, lines.Options{Key: keyColumn, Columns: []string{valueColumn},
		Nulls: source.NullsSkip})
	if errors.Is(err, writer.ErrOptions) {
		err = s.columns(err)
	}
	return l, err
}

func (s *Scores) columns(err error) error {
	return specf("scores %s need the columns %s and %s: %w", s.Name, keyColumn, valueColumn, err)
}

// each calls f with every key and its score.
func (s *Scores) each(ctx context.Context, f func(key string, score float64) error) error {
	from, err := s.open(ctx)
	if err != nil {
		return err
	}
	defer from.Close()
	for {
		row, err := from.Next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		var bad *writer.SampleError
		if errors.As(err, &bad) && bad.LeaveOut { // a row whose value is null
			continue
		}
		if err != nil {
			return fmt.Errorf("scores: %w", err)
		}
		score, err := scoreOf(ctx, &row)
		if err == nil {
			err = checkWeight(score)
		}
		if err != nil {
			return specf("scores: %s, row %d: the value of the key %q: %w", s.Name, row.Row, row.Key, err)
		}
		if err := f(row.Key, score); err != nil {
			return err
		}
	}
}

// scoreOf is the number in the only field of a row.
func scoreOf(ctx context.Context, row *writer.Sample) (float64, error) {
	if len(row.Fields) == 0 {
		return 0, errors.New("it is missing")
	}
	field := &row.Fields[0]
	text := field.Data
	if field.Payload != nil {
		if field.Size > 1<<10 {
			return 0, fmt.Errorf("%d bytes are not a number", field.Size)
		}
		text = make([]byte, field.Size)
		if err := field.Payload.ReadInto(ctx, text); err != nil {
			return 0, err
		}
	}
	x, err := strconv.ParseFloat(strings.TrimSpace(string(text)), 64)
	if err != nil {
		return 0, fmt.Errorf("%.60q is not a number", text)
	}
	return x, nil
}

// scores joins weights by key.
func (m *maker) scores(ctx context.Context, w []float64) error {
	s := m.spec.Scores
	j := m.joiner(s.Name)
	defer j.close()
	j.once = true
	j.each = func(ctx context.Context, f func(key []byte) error) error {
		return s.each(ctx, func(key string, _ float64) error { return f([]byte(key)) })
	}
	err := s.each(ctx, func(key string, score float64) error {
		return j.Add(recordOf([]byte(key), math.Float64bits(score)))
	})
	if err != nil {
		return err
	}
	j.found = func(number uint64, r record) error {
		w[number] = math.Float64frombits(r.Value)
		return nil
	}
	return j.join(ctx)
}
