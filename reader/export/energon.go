package export

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/extsort"
	"github.com/shardtool/shardtool/internal/sections"
)

// The folder of Energon, megatron/energon/flavors/webdataset/config.py of megatron-energon 7.4.1.
const (
	energonFolder  = ".nv-meta/"
	energonVersion = "7.4.1"
)

// energonSchema is what SqliteIndexWriter of megatron-energon 7.4.1 makes: tables, and their
// indexes.
const (
	sqlSamples = `CREATE TABLE samples (tar_file_id INTEGER NOT NULL, sample_key TEXT NOT NULL UNIQUE, sample_index INTEGER NOT NULL, byte_offset INTEGER, byte_size INTEGER)`
	sqlParts   = `CREATE TABLE sample_parts (tar_file_id INTEGER, sample_index INTEGER, part_name TEXT, content_byte_offset INTEGER, content_byte_size INTEGER)`
	sqlByTar   = `CREATE INDEX idx_samples_by_tar_and_idx ON samples(tar_file_id, sample_index)`
	sqlSeq     = `CREATE INDEX idx_sample_parts_seq ON sample_parts(tar_file_id, sample_index, content_byte_offset)`
	sqlFull    = `CREATE INDEX idx_sample_parts_full ON sample_parts(tar_file_id, sample_index, part_name, content_byte_offset, content_byte_size)`
)

// energonIndex returns the offsets of the samples of an archive and of its end, as u64.
func energonIndex(ix *sections.ShardIndex) (out []byte, err error) {
	end := int64(0)
	for s := range members(ix) {
		if err := energonName(s.key, s.fields); err != nil {
			return nil, err
		}
		out = binary.LittleEndian.AppendUint64(out, uint64(s.from))
		end = s.to
	}
	return binary.LittleEndian.AppendUint64(out, uint64(end)), nil
}

// energonName rejects names that Energon would skip or that its index cannot hold. It divides names
// at the first dot after the last slash, as the data set does.
func energonName(key string, fields []format.FieldSize) error {
	switch {
	case strings.HasPrefix(key, "__") && strings.Contains(strings.SplitAfterN(key, "/", 2)[0], "__/"):
		return fmt.Errorf("%w: key %q begins with a folder that Energon skips: pack the data set again with other keys", ErrName, key)
	case !utf8.ValidString(key):
		return fmt.Errorf("%w: key %q is not UTF-8, and Energon reads nothing else: pack the data set again with other keys", ErrName, key)
	}
	for _, f := range fields {
		if !utf8.ValidString(f.Name) {
			return fmt.Errorf("%w: sample %q: field %q is not UTF-8, and Energon reads nothing else: pack the data set again with other names", ErrName, key, f.Name)
		}
	}
	return nil
}

// energonMeta writes the folder .nv-meta. Archives without samples are not in it.
func (e *exporter) energonMeta(ctx context.Context) error {
	// An object of JSON keeps the order of the shards.
	counts, names := []byte("{"), []byte(nil)
	for _, a := range e.res.Shards {
		if a.Samples == 0 {
			continue
		}
		name, err := json.Marshal(a.Name)
		if err != nil {
			return err
		}
		if len(counts) > 1 {
			counts = append(counts, ',')
		}
		counts = fmt.Appendf(counts, "%s: %d", name, a.Samples)
		names = fmt.Appendf(names, "  - %s\n", name)
	}
	info := struct {
		Version string          `json:"energon_version"`
		Counts  json.RawMessage `json:"shard_counts"`
	}{energonVersion, append(counts, '}')}
	if err := e.putJSON(ctx, energonFolder+".info.json", info); err != nil {
		return err
	}
	split := "split_parts:\n  train:\n" + string(names)
	if names == nil {
		split = "split_parts:\n  train: []\n"
	}
	id := sha256.Sum256([]byte(e.res.Digest))
	for _, f := range []struct{ name, text string }{
		{"split.yaml", split + "  val: []\n  test: []\nexclude: []\n"},
		{"dataset.yaml", "__module__: megatron.energon\n__class__: CrudeWebdataset\n"},
		{"index.uuid", fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:16])},
	} {
		if err := e.put(ctx, energonFolder+f.name, []byte(f.text)); err != nil {
			return err
		}
	}
	db, err := newDatabase()
	if err != nil {
		return err
	}
	defer db.close()
	if err := e.energonRows(ctx, db); err != nil {
		return err
	}
	_, err = e.object(ctx, energonFolder+"index.sqlite", func(put func([]byte) error) error {
		buf := make([]byte, 1<<20)
		in := db.reader()
		for {
			n, err := io.ReadFull(in, buf)
			if n > 0 {
				if err := put(buf[:n]); err != nil {
					return err
				}
			}
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				return nil
			}
			if err != nil {
				return err
			}
		}
	})
	return err
}

// energonRows fills the database with all samples and their members.
func (e *exporter) energonRows(ctx context.Context, db *database) error {
	samples, parts := db.tree(false), db.tree(false)
	byTar, seq, full, byKey := db.tree(true), db.tree(true), db.tree(true), db.tree(true)
	keys := extsort.New("", 32<<20) // a key, a NUL that no key has, and the number of the row
	defer keys.Close()
	var row, part int64
	file := int64(0)
	for i, a := range e.res.Shards {
		if a.Samples == 0 {
			continue
		}
		ix, err := e.d.Index(ctx, i)
		if err != nil {
			return err
		}
		number := int64(0)
		for s := range members(ix) {
			row++
			samples.add(row, file, s.key, number, s.from, s.to-s.from)
			byTar.add(0, file, number, row)
			if err := keys.Add(binary.BigEndian.AppendUint64([]byte(s.key+"\x00"), uint64(row))); err != nil {
				return err
			}
			for k, f := range s.fields {
				part++
				parts.add(part, file, number, f.Name, s.offsets[k], f.Size)
				seq.add(0, file, number, s.offsets[k], part)
				full.add(0, file, number, f.Name, s.offsets[k], f.Size, part)
			}
			number++
		}
		if db.err != nil {
			return db.err
		}
		file++
	}
	before := ""
	for record, err := range keys.All() {
		if err != nil {
			return err
		}
		end := len(record) - 8
		key := string(record[:end-1])
		if key == before {
			return fmt.Errorf("%w: two samples have the key %q, and Energon needs different ones: pack the data set again with other keys", ErrName, key)
		}
		before = key
		byKey.add(0, key, int64(binary.BigEndian.Uint64(record[end:])))
	}
	return db.finish([]object{
		{"table", "samples", "samples", samples.finish(), sqlSamples},
		{"index", "sqlite_autoindex_samples_1", "samples", byKey.finish(), ""},
		{"table", "sample_parts", "sample_parts", parts.finish(), sqlParts},
		{"index", "idx_samples_by_tar_and_idx", "samples", byTar.finish(), sqlByTar},
		{"index", "idx_sample_parts_seq", "sample_parts", seq.finish(), sqlSeq},
		{"index", "idx_sample_parts_full", "sample_parts", full.finish(), sqlFull},
	})
}
