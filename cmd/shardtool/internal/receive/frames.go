package receive

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/shardtool/shardtool/objstore"
)

// Protocol is the version of the frames. Both ends must have the same version.
const Protocol = 5

// Kinds of frames.
const (
	kindBegin   = 1
	kindLayout  = 2
	kindSamples = 3
	kindColumns = 4
	kindEnd     = 5
	kindState   = 6
	kindShared  = 7
	kindNumbers = 8
	kindShard   = 9
	kindCommit  = 10
)

// Errors that a caller branches on.
var (
	// ErrLeft: the input ended before END.
	ErrLeft = errors.New("the parent ended or left the writer before its end: nothing was published")
	// ErrProtocol: the frames are of another version.
	ErrProtocol = errors.New("protocol")
)

// Begin is the body of BEGIN: the options of the writer, in the terms of package writer.
type Begin struct {
	Protocol        int              `json:"protocol"`
	Dataset         objstore.Address `json:"dataset"` // no argument of the process: all users see those
	Source          string           `json:"source"`  // text that identifies what is written, for resuming
	KeyPrefix       string           `json:"key_prefix"`
	Name            string           `json:"name"`
	ShardSize       int64            `json:"shard_size"`
	BlockSize       int64            `json:"block_size"`
	SamplesPerShard int64            `json:"samples_per_shard"`
	Level           string           `json:"level"`
	Layout          string           `json:"layout"` // of writer.Layout; empty: by the first samples, see Source.Stacks
	Mode            string           `json:"mode"`
	Resume          bool             `json:"resume"`
	Part            int              `json:"part"`
	Parts           int              `json:"parts"`
	KeepDuplicates  bool             `json:"keep_duplicates"`
	Workers         int              `json:"workers"`
	Memory          int64            `json:"memory"`
	// Schema are the declared fields and attributes; the bytes depend on them.
	Schema string `json:"schema"`
	// Layer makes the samples rows of a layer of the data set; nil: they are samples of their own.
	Layer *Layer `json:"layer"`
	// Shared is memory for the bodies of frames; nil: all are in the input.
	Shared *Memory `json:"shared"`
}

// Layer is a layer that a parent writes, in the terms of package writer.
type Layer struct {
	Name        objstore.Address  `json:"name"` // or its address
	Replaces    []string          `json:"replaces"`
	AllowMiss   bool              `json:"allow_missing"`
	SkipUnknown bool              `json:"skip_unknown"`
	Update      bool              `json:"update"`
	LargeBlocks bool              `json:"large_blocks"`
	Options     map[string]string `json:"options"` // recorded, and compared where a run continues
	// Parts makes the parent send shards, one after another, each begun by SHARD.
	Parts bool `json:"parts"`
}

// frame is a frame that was received.
type frame struct {
	kind   byte
	body   []byte
	shared bool // body is in a slot of the shared memory
	slot   int
	err    error
}

// maxJSON bounds BEGIN and LAYOUT, and step what is allocated before the bytes arrive.
const maxJSON, step = 16 << 20, 16 << 20

// readFrame reads a frame into buf, which may be nil.
func readFrame(r io.Reader, buf []byte) (frame, error) {
	var head [8]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return frame{}, ended(err)
	}
	word := binary.LittleEndian.Uint64(head[:])
	f := frame{kind: byte(word >> 56)}
	n := int64(word & (1<<56 - 1))
	switch {
	case f.kind < kindBegin || f.kind > kindCommit || f.kind == kindShared && n != sharedLen:
		return f, fmt.Errorf("%w: a frame of kind %d and length %d", ErrProtocol, f.kind, n)
	case n > maxJSON && (f.kind == kindBegin || f.kind == kindLayout):
		return f, fmt.Errorf("%w: a frame of kind %d with %d bytes", ErrProtocol, f.kind, n)
	}
	f.body = buf[:0]
	for left := n; left > 0; {
		at, more := len(f.body), int(min(left, step))
		if cap(f.body)-at < more { // grows with the bytes that arrive
			f.body = append(make([]byte, 0, min(2*int64(at)+int64(more), n)), f.body...)
		}
		f.body = f.body[:at+more]
		if _, err := io.ReadFull(r, f.body[at:]); err != nil {
			return f, ended(err)
		}
		left -= int64(more)
	}
	return f, nil
}

func ended(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return ErrLeft
	}
	return err
}

// ReadBegin reads BEGIN.
func ReadBegin(r io.Reader) (*Begin, error) {
	f, err := readFrame(r, nil)
	if err != nil {
		return nil, err
	}
	b := &Begin{}
	if f.kind != kindBegin {
		return nil, fmt.Errorf("%w: the first frame is of kind %d", ErrProtocol, f.kind)
	}
	if err := json.Unmarshal(f.body, b); err != nil {
		return nil, fmt.Errorf("%w: BEGIN: %w", ErrProtocol, err)
	}
	if b.Protocol != Protocol {
		return nil, fmt.Errorf("%w: the parent speaks version %d of it, this program %d: install package and program of one version", ErrProtocol, b.Protocol, Protocol)
	}
	if b.Shared != nil {
		err = b.Shared.open()
	}
	return b, err
}
