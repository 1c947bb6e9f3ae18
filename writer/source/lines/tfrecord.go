package lines

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/npy"
	"github.com/shardtool/shardtool/writer/source/internal/rows"
)

// tfRecord stands in place of the separator of cells for files of TFRecord. A record is its length
// as u64, the masked CRC-32C of these bytes, its bytes, and their masked CRC-32C:
// https://www.tensorflow.org/tutorials/load_data/tfrecord
const tfRecord = 0xff

const (
	recordHead = 12
	recordTail = 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// maskedCRC is the checksum that a record has.
func maskedCRC(b []byte) uint32 {
	sum := crc32.Checksum(b, castagnoli)
	return (sum>>15 | sum<<17) + 0xa282ead8
}

// errWire means that a record is no message of tf.train.
var errWire = corruptf("it is neither a tf.train.Example nor a SequenceExample")

// messages calls each for the fields of a message that are messages or bytes, and for numbers with
// their bytes.
func messages(b []byte, each func(num protowire.Number, typ protowire.Type, b []byte) error) error {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return errWire
		}
		b = b[n:]
		if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
			return errWire
		}
		value := b[:n]
		if b = b[n:]; typ == protowire.BytesType {
			value, _ = protowire.ConsumeBytes(value)
		}
		if err := each(num, typ, value); err != nil {
			return err
		}
	}
	return nil
}

// entries calls each for the entries of a map from strings to messages.
func entries(b []byte, each func(name string, value []byte) error) error {
	return messages(b, func(num protowire.Number, typ protowire.Type, entry []byte) error {
		if num != 1 || typ != protowire.BytesType {
			return nil
		}
		var name, value []byte
		err := messages(entry, func(num protowire.Number, typ protowire.Type, b []byte) error {
			if typ == protowire.BytesType && num == 1 {
				name = b
			} else if typ == protowire.BytesType && num == 2 {
				value = b
			}
			return nil
		})
		if err != nil {
			return err
		}
		if !utf8.Valid(name) {
			return corruptf("the name of a feature is not UTF-8")
		}
		return each(string(name), value)
	})
}

// tfFeature is a tf.train.Feature: a list of bytes, of floats or of integers.
type tfFeature struct {
	kind    protowire.Number // 1 bytes, 2 floats, 3 integers; 0 for none
	bytes   [][]byte
	numbers []byte // little-endian, 4 bytes a float and 8 an integer
}

func (f *tfFeature) read(b []byte) error {
	return messages(b, func(num protowire.Number, typ protowire.Type, list []byte) error {
		if typ != protowire.BytesType || num < 1 || num > 3 {
			return errWire
		}
		if num != f.kind {
			*f = tfFeature{kind: num}
		}
		return messages(list, func(num protowire.Number, typ protowire.Type, b []byte) error {
			if num != 1 {
				return errWire
			}
			return f.add(typ, b)
		})
	})
}

// add adds a value of the list, or those that are packed.
func (f *tfFeature) add(typ protowire.Type, b []byte) error {
	switch {
	case f.kind == 1 && typ == protowire.BytesType:
		f.bytes = append(f.bytes, b)
		return nil
	case f.kind == 2 && (typ == protowire.Fixed32Type || typ == protowire.BytesType && len(b)%4 == 0):
		f.numbers = append(f.numbers, b...)
		return nil
	case f.kind == 3 && (typ == protowire.VarintType || typ == protowire.BytesType):
		for len(b) > 0 {
			v, n := protowire.ConsumeVarint(b)
			if n < 0 {
				return errWire
			}
			f.numbers, b = binary.LittleEndian.AppendUint64(f.numbers, v), b[n:]
		}
		return nil
	}
	return errWire
}

// size returns the length of a number and its type in .npy.
func (f *tfFeature) size() (n int, descr string) {
	if f.kind == 2 {
		return 4, "<f4"
	}
	return 8, "<i8"
}

// featureValue returns the value of a feature: one byte string as it is, several as a JSON list,
// numbers as an array, also where there is one, because the record does not tell it from a list.
func featureValue(c *chunk, b []byte) (rows.Cell, error) {
	var f tfFeature
	err := f.read(b)
	switch {
	case err != nil:
		return rows.Cell{}, err
	case f.kind == 0:
		return rows.Cell{Kind: rows.Null}, nil
	case f.kind == 1 && len(f.bytes) == 1:
		return rows.Cell{Kind: rows.Bytes, B: f.bytes[0]}, nil
	case f.kind == 1:
		return texts(f.bytes)
	}
	size, descr := f.size()
	return c.array(descr, f.numbers, len(f.numbers)/size), nil
}

// array returns an array of a chunk.
func (c *chunk) array(descr string, numbers []byte, shape ...int) rows.Cell {
	begin := len(c.Data)
	c.Data = append(npy.AppendHeader(c.Data, descr, shape...), numbers...)
	return rows.Cell{Kind: rows.Array, B: c.Since(begin)}
}

// texts returns strings as a JSON list.
func texts(list [][]byte) (rows.Cell, error) {
	out := make([]string, len(list))
	for i, b := range list {
		if !utf8.Valid(b) {
			return rows.Cell{}, fmt.Errorf("it has %d byte strings that are not all UTF-8, which become no field: take the other columns only", len(list))
		}
		out[i] = string(b)
	}
	text, err := json.Marshal(out)
	return rows.Cell{Kind: rows.List, B: text}, err
}

// steps returns the value of a feature list: numbers as an array with a row for each step, and one
// byte string a step as a JSON list.
func steps(c *chunk, list []byte) (rows.Cell, error) {
	var all tfFeature
	n, each := 0, -1
	err := messages(list, func(num protowire.Number, typ protowire.Type, b []byte) error {
		if num != 1 || typ != protowire.BytesType {
			return errWire
		}
		var f tfFeature
		if err := f.read(b); err != nil {
			return err
		}
		size, _ := f.size()
		values := len(f.bytes) + len(f.numbers)/size
		if n++; each >= 0 && (f.kind != all.kind || values != each) {
			return fmt.Errorf("step %d has other values than the first: %d, not %d; take the other columns only", n-1,
				values, each)
		}
		each, all.kind = values, f.kind
		all.bytes, all.numbers = append(all.bytes, f.bytes...), append(all.numbers, f.numbers...)
		return nil
	})
	switch {
	case err != nil || all.kind == 0:
		return rows.Cell{Kind: rows.Null}, err
	case all.kind == 1 && each != 1:
		return rows.Cell{}, fmt.Errorf("its steps have %d byte strings each, which become no field: take the other columns only", each)
	case all.kind == 1:
		return texts(all.bytes)
	}
	_, descr := all.size()
	if len(all.numbers) > maxArray {
		return rows.Cell{}, fmt.Errorf("%w: an array of %d bytes", format.ErrTooLarge, len(all.numbers))
	}
	return c.array(descr, all.numbers, n, each), nil
}
