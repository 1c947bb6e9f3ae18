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

// Next waits for what the parent asks for: a shard, or with commit to publish the layer. The error
// is io.EOF where the parent has left.
func (s *Shards) Next() (shard int, commit bool, err error) {
	f, err := readFrame(s.in, nil)
	switch {
	case errors.Is(err, ErrLeft):
		return 0, false, io.EOF
	case err != nil:
		return 0, false, err
	case f.kind == kindCommit:
		return 0, true, nil
	case f.kind != kindShard || len(f.body) != 4:
		return 0, false, fmt.Errorf("%w: a frame of kind %d and %d bytes in place of a shard", ErrProtocol, f.kind, len(f.body))
	}
	return int(binary.LittleEndian.Uint32(f.body)), false, nil
}

// Rows returns the rows of the shard that Next has returned. The caller must Close it.
func (s *Shards) Rows(ready func(Place) error) *Source {
	return New(s.begin, s.in, nil, ready)
}
