package fetch

import (
	"fmt"
	"sync"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/codec"
)

// Scratch is what one goroutine needs to turn stored bytes into samples.
type Scratch struct {
	Decoded []byte // of random reads; kept for the next one up to scratchKeep

	decoder *decoder
	stored  []byte // bytes of one read
}

const (
	// scratchKeep is the largest Scratch.Decoded that is kept.
	scratchKeep = 4 << 20
	// scratchIdle bounds what a pool keeps: some 6 MiB each.
	scratchIdle = 32
)

// hold returns n bytes for one read.
func (s *Scratch) hold(n int) []byte {
	if cap(s.stored) < n {
		s.stored = make([]byte, n+n/4)
	}
	return s.stored[:n]
}

// ScratchPool keeps scratch for the next use: making a decoder costs more than decoding a block.
// The zero value is ready for use by several goroutines at once.
type ScratchPool struct {
	mu     sync.Mutex
	idle   []*Scratch
	closed bool
}

// Get returns scratch, which the caller must Put back.
func (p *ScratchPool) Get() *Scratch {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.idle); n > 0 {
		s := p.idle[n-1]
		p.idle = p.idle[:n-1]
		return s
	}
	return &Scratch{decoder: newDecoder()}
}

// Put takes scratch back.
func (p *ScratchPool) Put(s *Scratch) {
	if cap(s.Decoded) > scratchKeep {
		s.Decoded = nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.idle) == scratchIdle {
		s.decoder.close()
		return
	}
	p.idle = append(p.idle, s)
}

// Close frees the scratch that is kept. Scratch put back later is freed too.
func (p *ScratchPool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, s := range p.idle {
		s.decoder.close()
	}
	p.idle = nil
}

// decoder is a codec.Decoder that outlives a panic of the library below it.
type decoder struct{ d *codec.Decoder }

// newDecoder leaves the frames' own xxh64 alone: the CRC-32C of the stored bytes proves as much and
// costs less.
func newDecoder() *decoder { return &decoder{codec.NewDecoder(false)} }

func (d *decoder) close() { d.d.Close() }

func (d *decoder) decode(dst, stored []byte, r format.Row) (out []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			d.d = codec.NewDecoder(false) // the old one may be in any state
			out, err = nil, fmt.Errorf("%w: the decoder failed: %v", format.ErrCorrupt, p)
		}
	}()
	return d.d.Decode(dst, stored, r)
}
