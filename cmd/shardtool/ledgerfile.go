package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/shardtool/shardtool/internal/order/ledger"
)

// ledgerName is the file beside a checkpoint that names the blocks left out so far.
func ledgerName(checkpoint string) string { return checkpoint + ".skipped" }

func readLedger(checkpoint string) ([]ledger.Block, error) {
	text, err := os.ReadFile(ledgerName(checkpoint))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return ledger.Decode(text)
}

func writeLedger(checkpoint string, blocks []ledger.Block) error {
	if len(blocks) == 0 { // a ledger that an earlier job left does not describe this one
		if err := os.Remove(ledgerName(checkpoint)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	text, err := ledger.Append(nil, blocks)
	if err != nil {
		return err
	}
	return replaceFile(ledgerName(checkpoint), text)
}

// replaceFile puts a file in place of the old one in one step. It does not wait for the disk: a
// machine that loses power goes on from an older checkpoint.
func replaceFile(name string, data []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+"-*")
	if err != nil {
		return err
	}
	_, err = tmp.Write(data)
	err = errors.Join(err, tmp.Chmod(0o644), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), name)
	}
	if err != nil {
		_ = os.Remove(tmp.Name())
	}
	return err
}
