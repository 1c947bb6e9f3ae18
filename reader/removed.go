package reader

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/reader/internal/fetch"
)

// ErrRemoved reports that a sample was removed from the data set. The error also wraps
// fs.ErrNotExist. The sample keeps its number and its place in every order, where it is a hole.
var ErrRemoved = errors.New("the sample was removed from the data set")

// removedError is the error of a request for a removed sample.
type removedError struct{ what string }

func (e *removedError) Error() string   { return fmt.Sprintf("%s: %v", e.what, ErrRemoved) }
func (e *removedError) Unwrap() []error { return []error{ErrRemoved, fs.ErrNotExist} }

// Removed reports whether the sample of that number was removed.
func (d *Dataset) Removed(number uint64) bool {
	return len(metadata.Within(d.tables.Removed, number, number+1)) > 0
}

// alsoRemove adds samples to the ones that the generation lists as removed.
func (d *Dataset) alsoRemove(numbers []uint64) error {
	if n := len(numbers); n > 0 && (numbers[n-1] >= d.tables.Samples || !slices.IsSorted(numbers)) {
		return fmt.Errorf("removed samples up to number %d of %d: give them in ascending order", numbers[n-1],
			d.tables.Samples)
	}
	all := slices.Concat(d.tables.Removed, numbers)
	slices.Sort(all)
	d.tables.Removed = slices.Compact(all)
	return nil
}

// locate finds a sample that may be delivered: one that was removed is an error that wraps
// ErrRemoved.
func (d *Dataset) locate(ctx context.Context, number uint64) (j fetch.Job, index int, err error) {
	j, index, err = d.catalog.Locate(ctx, number)
	if err == nil && j.Shard.Gone(number) {
		err = &removedError{fmt.Sprintf("sample number %d", number)}
	}
	return j, index, err
}
