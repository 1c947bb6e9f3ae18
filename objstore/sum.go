package objstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash"
)

// ErrChecksum: the bytes read are not those that the store has a checksum of.
var ErrChecksum = errors.New("the bytes read do not match the store's checksum")

// Sum is a checksum that a store keeps of all bytes of an object, in order.
type Sum struct {
	// Name is the algorithm's, for people.
	Name string
	// Want is the value that the store gives.
	Want []byte
	// New begins the computation of such a value.
	New func() hash.Hash
	// Advice, where not empty, is what else than other bytes may be the cause of a mismatch, and
	// what to do about it.
	Advice string
}

// Check returns an error that wraps [ErrChecksum] when h, which was made by New and has seen all
// bytes, has another value.
func (s *Sum) Check(h hash.Hash) error {
	got := h.Sum(nil)
	if bytes.Equal(got, s.Want) {
		return nil
	}
	err := fmt.Errorf("%w: their %s is %x, the store's is %x", ErrChecksum, s.Name, got, s.Want)
	if s.Advice != "" {
		err = fmt.Errorf("%w; %s", err, s.Advice)
	}
	return err
}

// SumOf returns the checksum of the version that o reads, or nil if its store keeps none that can be
// compared. It may send requests. An object declares its checksum with a method
// Sum(context.Context) (*Sum, error).
func SumOf(ctx context.Context, o Object) (*Sum, error) {
	if summed, ok := o.(interface {
		Sum(ctx context.Context) (*Sum, error)
	}); ok {
		return summed.Sum(ctx)
	}
	return nil, nil
}
