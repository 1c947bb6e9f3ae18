package writer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
	"strconv"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/internal/sys/plain"
	"github.com/shardtool/shardtool/objstore"
)

// revision is a generation made from the current one, without new samples.
type revision struct {
	store objstore.Store
	prior current
	puts  *puts
	log   *slog.Logger
}

// revise reads the current generation. It must be the one with the given tables, unless that is
// empty; otherwise the error wraps ErrLost. Where there is no data set it wraps fs.ErrNotExist.
func revise(ctx context.Context, store objstore.Store, tables string, log *slog.Logger) (*revision, error) {
	r := &revision{store: store, puts: newPuts(store), log: log}
	sum, err := r.prior.read(ctx, store)
	switch {
	case err != nil:
	case sum == nil:
		err = fmt.Errorf("there is no data set: check the path; `shardtool pack` makes one%w",
			plain.Silent(fs.ErrNotExist))
	case tables != "" && sum.Tables != tables:
		err = fmt.Errorf("%w: it published %s after %s", ErrLost, sum.Tables, tables)
	}
	if err != nil {
		return nil, fmt.Errorf("%v: %w", store, err)
	}
	return r, nil
}

// next is the new generation, equal to the one before until the caller changes it. It keeps
// the metadata of the pack, so that a commit of parts that is repeated still finds its generation.
func (r *revision) next(mode string) *metadata.Manifest {
	m := *r.prior.manifest
	m.Generation, m.Parent = r.prior.next(), r.prior.tables
	m.Shards = slices.Clone(m.Shards)
	m.Meta = format.Metadata{metaRevises: strconv.FormatUint(r.prior.manifest.Generation, 10)}
	maps.Copy(m.Meta, r.prior.manifest.Meta)
	m.Meta["mode"] = mode
	return &m
}

// metaRevises is the key in a revision's metadata of the generation that a pack published.
const metaRevises = "revises"

// publish publishes the new generation. The error wraps ErrLost where another program published
// since the current generation was read.
func (r *revision) publish(ctx context.Context, m *metadata.Manifest) (*Result, error) {
	p := publication{store: r.store, puts: r.puts, prior: &r.prior, equal: true, log: r.log}
	return p.put(ctx, m)
}

// Remove publishes a generation in which the samples of the given numbers are removed, beside those
// that were removed before. No shard is read or written, and the digest stays: removed samples are
// holes in every order (SPEC 9.11). tables names the generation whose numbers these are. Where it
// is no longer the current one, the error wraps ErrLost, and the caller finds the numbers anew.
//
// Where all of them were removed before, nothing is published, and the result has Already set. A
// number that no sample has is an error that wraps fs.ErrNotExist.
func Remove(ctx context.Context, store objstore.Store, tables string, numbers []uint64) (*Result, error) {
	return change(ctx, store, tables, "remove", func(m *metadata.Manifest) error {
		m.Removed = union(m.Removed, numbers)
		if n := len(m.Removed); n > 0 && m.Removed[n-1] >= metadata.SumSamples(m.Shards) {
			return fmt.Errorf("sample number %d of %d: %w", m.Removed[n-1], metadata.SumSamples(m.Shards),
				fs.ErrNotExist)
		}
		return nil
	})
}

// Restore is the inverse of Remove: it publishes a generation in which these samples are back. A
// sample that was purged cannot return; the error wraps ErrPurged.
func Restore(ctx context.Context, store objstore.Store, tables string, numbers []uint64) (*Result, error) {
	return change(ctx, store, tables, "restore", func(m *metadata.Manifest) error {
		back := slices.Sorted(slices.Values(numbers))
		for _, n := range back {
			if gone(m.Purged, n) {
				return fmt.Errorf("sample number %d: %w", n, ErrPurged)
			}
		}
		m.Removed = slices.DeleteFunc(slices.Clone(m.Removed), func(n uint64) bool { return gone(back, n) })
		return nil
	})
}

// change publishes a generation with another list of removed samples, unless the list stays.
func change(ctx context.Context, store objstore.Store, tables, mode string,
	edit func(*metadata.Manifest) error) (*Result, error) {
	log := slog.New(slog.DiscardHandler)
	release, err := hold(ctx, store, mode+" of samples", log)
	if err != nil {
		return nil, err
	}
	defer release()
	r, err := revise(ctx, store, tables, log)
	if err != nil {
		return nil, err
	}
	m := r.next(mode)
	if err := edit(m); err != nil {
		return nil, fmt.Errorf("%v: %w", store, err)
	}
	if slices.Equal(m.Removed, r.prior.manifest.Removed) {
		return r.prior.result(ctx, store)
	}
	return r.publish(ctx, m)
}

// ErrPurged reports that the bytes of a removed sample are gone.
var ErrPurged = errors.New("the sample was purged: its bytes are gone")

// union merges two lists of ascending numbers.
func union(a, b []uint64) []uint64 {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}
