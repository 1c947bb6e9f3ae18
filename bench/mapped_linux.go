package main

import (
	"hash/crc32"
	"os"
	"syscall"

	"github.com/shardtool/shardtool/reader"
)

// mappedCRC returns a pass that maps each block of a data set, sums it in place and drops the
// mapping.
func (b *bench) mappedCRC(dir string, ds *reader.Dataset) (func() error, error) {
	pieces, err := b.places(ds, dir)
	if err != nil {
		return nil, err
	}
	table, page := crc32.MakeTable(crc32.Castagnoli), int64(os.Getpagesize())
	return func() error {
		for _, p := range pieces {
			skip := p.offset % page
			mem, err := syscall.Mmap(int(p.file.Fd()), p.offset-skip, int(skip)+int(p.row.Stored), syscall.PROT_READ, syscall.MAP_SHARED|syscall.MAP_POPULATE)
			if err != nil {
				return err
			}
			crc32.Checksum(mem[skip:], table)
			if err := syscall.Munmap(mem); err != nil {
				return err
			}
		}
		return nil
	}, nil
}
