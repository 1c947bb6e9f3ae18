//go:build !linux

package main

import (
	"errors"

	"github.com/shardtool/shardtool/reader"
)

func (b *bench) mappedCRC(string, *reader.Dataset) (func() error, error) {
	return nil, errors.ErrUnsupported
}
