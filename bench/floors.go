package main

import (
	"crypto/sha256"
	"hash/crc32"
	"slices"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/shardtool/shardtool/internal/format/codec"
	"github.com/shardtool/shardtool/reader"
)

// The floors that figures are held against: the work that nobody can leave out, and nothing else.

// each calls a function for the numbers below n, on some goroutines. begin makes the function of a
// goroutine, and what ends it.
func each(n, goroutines int, begin func(goroutine int) (do func(i int) error, end func())) error {
	var next atomic.Int64
	var g errgroup.Group
	for k := range goroutines {
		g.Go(func() error {
			do, end := begin(k)
			defer end()
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if err := do(i); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

func nothing() {}

// decodeAll decodes frames that are in memory.
func decodeAll(all []frame, goroutines int) func() error {
	return func() error {
		return each(len(all), goroutines, func(int) (func(int) error, func()) {
			d := codec.NewDecoder(false)
			var out []byte
			return func(i int) (err error) {
				out, err = d.Decode(slices.Grow(out[:0], codec.DecodeRoom(all[i].row)), all[i].stored, all[i].row)
				return err
			}, d.Close
		})
	}
}

// encodeAll compresses and hashes blocks in memory on all cores: the floor of packing text.
func (b *bench) encodeAll(blocks [][]byte, level codec.Level) func() error {
	return func() error {
		return each(len(blocks), b.cores, func(int) (func(int) error, func()) {
			e := codec.NewEncoder(level)
			var out []byte
			return func(i int) (err error) {
				sha256.Sum256(blocks[i])
				out, _, err = e.AppendFrame(out[:0], blocks[i], nil, nil)
				return err
			}, e.Close
		})
	}
}

// rings are memory that goroutines fill in turn, as a shuffled stream does: no cache holds it.
func rings(goroutines, size int) [][]byte {
	all := make([][]byte, goroutines)
	for i := range all {
		all[i] = make([]byte, size)
		clear(all[i]) // has it from the system
	}
	return all
}

// next returns room in a ring, which grows to at least that, and moves on.
func next(ring *[]byte, at *int, room int) []byte {
	if len(*ring) < room {
		*ring = make([]byte, room)
	}
	if *at+room > len(*ring) {
		*at = 0
	}
	*at += room
	return (*ring)[*at-room : *at : *at]
}

// pread reads the bytes of all frames from their files, into a ring of that size a goroutine, and
// sums them: the floor for data that is stored raw. It also returns the bytes.
func (b *bench) pread(dir string, ds *reader.Dataset, goroutines, ring int) (func() error, int64, error) {
	pieces, err := b.places(ds, dir)
	if err != nil {
		return nil, 0, err
	}
	total := int64(0)
	for _, p := range pieces {
		total += int64(p.row.Stored)
	}
	castagnoli, windows := crc32.MakeTable(crc32.Castagnoli), rings(goroutines, ring)
	return func() error {
		return each(len(pieces), goroutines, func(k int) (func(int) error, func()) {
			at := 0
			return func(i int) error {
				buf := next(&windows[k], &at, int(pieces[i].row.Stored))
				_, err := pieces[i].file.ReadAt(buf, pieces[i].offset)
				crc32.Checksum(buf, castagnoli)
				return err
			}, nothing
		})
	}, total, nil
}

// preadDecode reads the frames of some blocks, or of all if list is nil, from their files, checks
// and decodes them into a ring a goroutine, or each into memory of its own if ring is 0.
func (b *bench) preadDecode(dir string, ds *reader.Dataset, list []uint32, goroutines, ring int) (func() error, error) {
	pieces, err := b.places(ds, dir)
	if err != nil {
		return nil, err
	}
	if list == nil {
		for i := range pieces {
			list = append(list, uint32(i))
		}
	}
	windows := rings(goroutines, ring)
	return func() error {
		return each(len(list), goroutines, func(k int) (func(int) error, func()) {
			d := codec.NewDecoder(false)
			var stored []byte
			at := 0
			return func(i int) error {
				p := &pieces[list[i]]
				stored = slices.Grow(stored[:0], int(p.row.Stored))[:p.row.Stored]
				if _, err := p.file.ReadAt(stored, p.offset); err != nil {
					return err
				}
				if err := codec.CheckFrame(stored, p.row); err != nil {
					return err
				}
				var own []byte
				into, from := &own, 0
				if ring > 0 {
					into, from = &windows[k], at
				}
				room := next(into, &from, codec.DecodeRoom(p.row))
				at = from
				_, err := d.Decode(room[:0], stored, p.row)
				return err
			}, d.Close
		})
	}, nil
}
