package receive

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Shards reads what the parent of a layer in parts sends after BEGIN: shards, each begun by SHARD.
type Shards struct {
	begin *Begin
	in    io.Reader
}

// NewShards returns the shards that follow BEGIN.
func NewShards(begin *Begin, in io.Reader) *Shards { return &Shards{begin, in} }

// Asked is what the parent asks for: to write a shard, or to publish the layer. Err is io.EOF where
// the parent has left.
type Asked struct {
	Shard  int
	Commit bool
	Err    error
}

// Next waits for what the parent asks for.
func (s *Shards) Next() Asked {
	f, err := readFrame(s.in, nil)
	switch {
	case errors.Is(err, ErrLeft):
		return Asked{Err: io.EOF}
	case err != nil:
		return Asked{Err: err}
	case f.kind == kindCommit:
		return Asked{Commit: true}
	case f.kind != kindShard || len(f.body) != 4:
		return Asked{Err: fmt.Errorf("%w: a frame of kind %d and %d bytes in place of a shard", ErrProtocol, f.kind,
			len(f.body))}
	}
	return Asked{Shard: int(binary.LittleEndian.Uint32(f.body))}
}

// Rows returns the rows of the shard that Next has returned. The caller must Close it.
func (s *Shards) Rows(ready func(Place) error) *Source {
	return New(s.begin, s.in, nil, ready)
}
