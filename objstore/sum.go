package objstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash"
)

// ErrChecksum reports that the bytes read do not match the store's checksum.
var ErrChecksum = errors.New("the bytes read do not match the store's checksum")

// Sum is a checksum over all bytes of an object, kept by its store.
type Sum struct {
	// Name is the name of the algorithm, for messages.
	Name string
	// Want is the store's value.
	Want []byte
	// New returns a hash that computes such a value.
	New func() hash.Hash
	// Advice, if not empty, names another possible cause of a mismatch and what to do about it.
	Advice string
}

// Check compares the value of h, a hash returned by New that has seen all bytes. On a mismatch it
// returns an error that wraps [ErrChecksum].
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

// SumOf returns the checksum of the version that o reads, or nil if its store keeps none that can
// be compared. It may send requests. An object declares its checksum with a method
// Sum(context.Context) (*Sum, error).
func SumOf(ctx context.Context, o Object) (*Sum, error) {
	if summed, ok := o.(interface {
		Sum(ctx context.Context) (*Sum, error)
	}); ok {
		return summed.Sum(ctx)
	}
	return nil, nil
}
