package s3

import (
	"context"
	"errors"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/internal/ranged"
)

// SetSegmentParts makes the segments of uploads small enough for a test to fill.
func SetSegmentParts(s objstore.Store, n int) { s.(*store).segmentParts = n }

// StatsOf returns the counters of a store.
func StatsOf(s objstore.Store) ranged.Stats { return s.(*store).Reader.Stats() }

// CheckConditional makes both tests of the server that the first conditional commits make.
func CheckConditional(ctx context.Context, of objstore.Store) error {
	s := of.(*store)
	if s.at.google {
		return s.Fail("put", "", s.useGoogle())
	}
	var found []error
	for _, inParts := range []bool{false, true} {
		p, err := s.ask(ctx, inParts)
		if err != nil {
			return s.Fail("put", "", err)
		}
		if found = append(found, p.noneMatch); p.match != p.noneMatch {
			found = append(found, p.match)
		}
	}
	return s.Fail("put", "", errors.Join(found...))
}
