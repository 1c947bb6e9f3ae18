package simulate

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/internal/order/uniformity"
	"github.com/shardtool/shardtool/reader"
)

// Errors of Labels.
var (
	// ErrNoAttribute: a shard has no attribute of this name.
	ErrNoAttribute = errors.New("no such attribute")
	// ErrTooManyLabels: the attribute has more values than can be counted.
	ErrTooManyLabels = errors.New("too many values to count as labels")
)

// maxLabels is the most values of an attribute that are counted.
const maxLabels = math.MaxUint16

// Labels reads an attribute of all samples from the indexes of a data set. With an empty name it
// reads nothing and divides storage order into up to 100 parts of equal length.
func Labels(ctx context.Context, d *reader.Dataset, attribute string) (*uniformity.Labels, error) {
	if attribute == "" {
		return uniformity.Parts(d.NumSamples()), nil
	}
	numbers := map[string]uint16{}
	of := make([]uint16, 0, d.NumSamples())
	for shard := range d.NumShards() {
		columns, err := d.Columns(ctx, shard, []string{attribute})
		if err != nil {
			return nil, err
		}
		column := &columns[0]
		if column.Name == "" {
			return nil, fmt.Errorf("shard %d: %w: %q", shard, ErrNoAttribute, attribute)
		}
		for sample := range column.Len() {
			value, _ := column.At(sample)
			text := fmt.Sprint(metadata.Value(value))
			id, ok := numbers[text]
			if !ok {
				if len(numbers) == maxLabels {
					return nil, fmt.Errorf("attribute %q: %w: more than %d", attribute, ErrTooManyLabels, maxLabels)
				}
				id = uint16(len(numbers))
				numbers[text] = id
			}
			of = append(of, id)
		}
	}
	return uniformity.NewLabels(of), nil
}
