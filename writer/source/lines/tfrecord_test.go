package lines

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
)

func msg(num protowire.Number, b ...[]byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, num, protowire.BytesType), slices.Concat(b...))
}

func byteList(list ...string) []byte {
	var out []byte
	for _, s := range list {
		out = append(out, msg(1, []byte(s))...)
	}
	return msg(1, out)
}

func intList(list ...int64) []byte {
	var out []byte
	for _, n := range list {
		out = protowire.AppendVarint(out, uint64(n))
	}
	return msg(3, msg(1, out))
}

func floatList(list ...float32) []byte { // one by one, as old writers have them
	var out []byte
	for _, x := range list {
		out = protowire.AppendFixed32(protowire.AppendTag(out, 1, protowire.Fixed32Type), math.Float32bits(x))
	}
	return msg(2, out)
}

func entry(name string, value []byte) []byte { return msg(1, msg(1, []byte(name)), msg(2, value)) }

// framed is a file of records.
func framed(records ...[]byte) (out []byte) {
	for _, r := range records {
		head := binary.LittleEndian.AppendUint64(nil, uint64(len(r)))
		out = append(out, binary.LittleEndian.AppendUint32(head, maskedCRC(head))...)
		out = binary.LittleEndian.AppendUint32(append(out, r...), maskedCRC(r))
	}
	return out
}

func sampleRecords() []byte {
	example := msg(1, entry("id", byteList("k1")), entry("image/encoded", byteList("\xff\xd8")), entry("label", intList(-3)), entry("ids", intList(1, 2, 1<<62)),
		entry("x", floatList(1.5)), entry("words", byteList("a", "é")), entry("none", nil), entry("empty", intList()))
	sequence := slices.Concat(msg(1, entry("id", byteList("k2"))), msg(2, entry("rows", slices.Concat(msg(1, intList(1, 2)), msg(1, intList(3, 4)))),
		entry("says", slices.Concat(msg(1, byteList("hi")), msg(1, byteList("ho"))))))
	return framed(example, sequence)
}

func TestTFRecord(t *testing.T) {
	t.Parallel()
	file := string(sampleRecords())
	for _, in := range [][]source.Input{given(t, "a.tfrecord", file), given(t, "a.tfrecords.gz", file)} {
		s := open(t, Options{Key: "id", Attrs: map[string]string{"label": "label"}, chunk: 10}, in)
		first, err := s.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, f := range first.Fields {
			data := f.Data
			if bytes.HasPrefix(data, []byte("\x93NUMPY")) {
				data = append(data[128:len(data):len(data)], " "+string(data[20:25])...)
			}
			got[f.Name] = string(data)
		}
		want := map[string]string{"image_encoded.bin": "\xff\xd8", "label.npy": "\xfd\xff\xff\xff\xff\xff\xff\xff '<i8'", "x.npy": "\x00\x00\xc0\x3f '<f4'",
			"ids.npy": "\x01\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x40 '<i8'", "words.json": `["a","é"]`, "empty.npy": " '<i8'"}
		for name, data := range want {
			if !strings.HasSuffix(got[name], data) || got[name] == "" {
				t.Errorf("%s: %q, want %q", name, got[name], data)
			}
		}
		if len(got) != len(want) || first.Key != "k1" || len(first.Attrs) != 1 || first.Attrs[0].Integer != -3 {
			t.Errorf("%q %+v", got, first)
		}
		cursor := s.Cursor()
		second, err := s.Next(t.Context())
		if err != nil || second.Key != "k2" || len(second.Fields) != 2 || !strings.Contains(string(second.Fields[0].Data), "(2, 2)") || string(second.Fields[1].Data) != `["hi","ho"]` {
			t.Fatalf("%+v %v", second, err)
		}
		if _, err := s.Next(t.Context()); !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		whole := s.Learned()["kinds"]
		if want := `{"empty.npy":"npy","ids.npy":"npy","image_encoded.bin":"bytes","label.npy":"npy","rows.npy":"npy","says.json":"json","words.json":"json","x.npy":"npy"}`; whole != want {
			t.Error(whole)
		}
		if err := s.Seek(t.Context(), cursor); err != nil {
			t.Fatal(err)
		}
		if again, err := s.Next(t.Context()); err != nil || again.Key != "k2" {
			t.Fatal(again, err)
		}
	}
	parts := given(t, "a.tfrecord", file, "b.tfrecord", file, "c.tfrecord", "")
	n := 0
	for part := range 3 {
		s := open(t, Options{}, parts)
		if err := s.Split(part, 3); err != nil {
			t.Fatal(err)
		}
		n += len(all(t, s))
	}
	if n != 4 {
		t.Errorf("%d samples in parts", n)
	}
	if got := all(t, open(t, Options{Where: []string{"label = -3", "x > 1"}}, parts[:1])); len(got) != 1 {
		t.Errorf("%q", got)
	}
}

// TestTFRecordBad: damage is an error, of the record where only that is hurt.
func TestTFRecordBad(t *testing.T) {
	t.Parallel()
	file := sampleRecords()
	read := func(file []byte) (samples int, bad []string, err error) {
		s := open(t, Options{MaxLine: 1 << 20}, given(t, "a.tfrecord", string(file)))
		for {
			_, err := s.Next(t.Context())
			var se *writer.SampleError
			switch {
			case errors.Is(err, io.EOF):
				return samples, bad, nil
			case errors.As(err, &se):
				bad = append(bad, err.Error())
			case err != nil:
				return samples, bad, err
			default:
				samples++
			}
		}
	}
	for n := 1; n < len(file); n++ {
		samples, bad, err := read(file[:n])
		if len(bad) > 0 || samples > 1 || (err == nil) != (n == recordEnd(file)) {
			t.Fatalf("%d bytes: %d samples, %q, %v", n, samples, bad, err)
		}
	}
	for at := range file {
		damaged := bytes.Clone(file)
		damaged[at] ^= 4
		if samples, bad, err := read(damaged); samples == 2 || len(bad) == 0 && !errors.Is(err, format.ErrCorrupt) {
			t.Fatalf("byte %d: %d samples, %q, %v", at, samples, bad, err)
		}
	}
	huge := binary.LittleEndian.AppendUint64(nil, 1<<60)
	huge = binary.LittleEndian.AppendUint32(huge, maskedCRC(huge))
	if _, _, err := read(huge); err == nil || !strings.Contains(err.Error(), "record 0") {
		t.Error(err)
	}
	for want, record := range map[string][]byte{
		"neither": []byte("text"), "not all UTF-8": msg(1, entry("w", byteList("a", "\xff"))), "name of a feature": msg(1, entry("\xff", intList(1))),
		"step 1": msg(2, entry("r", slices.Concat(msg(1, intList(1, 2)), msg(1, intList(3))))), "2 byte strings each": msg(2, entry("r", msg(1, byteList("a", "b")))),
	} {
		if samples, bad, err := read(framed(record)); err != nil || samples > 0 || len(bad) != 1 || !strings.Contains(bad[0], want) {
			t.Errorf("%d samples, %q, %v, want %q", samples, bad, err, want)
		}
	}
}

// recordEnd is the end of the first record.
func recordEnd(file []byte) int {
	return recordHead + recordTail + int(binary.LittleEndian.Uint64(file))
}

// FuzzTFRecord: no record causes a panic, a hang or a large allocation.
func FuzzTFRecord(f *testing.F) {
	file := sampleRecords()
	f.Add(file[recordHead:recordEnd(file)-recordTail], true)
	f.Add(file[recordEnd(file)+recordHead:len(file)-recordTail], true)
	f.Add(file, false)
	f.Fuzz(func(t *testing.T, b []byte, frame bool) {
		if frame {
			b = framed(b)
		}
		s, err := New(t.Context(), given(t, "a.tfrecord", string(b)), Options{MaxLine: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for {
			sample, err := s.Next(t.Context())
			var se *writer.SampleError
			if err != nil && !errors.As(err, &se) {
				return
			}
			for _, field := range sample.Fields {
				if len(field.Data) > 16*len(b)+4096 {
					t.Fatalf("%d bytes of %d", len(field.Data), len(b))
				}
			}
		}
	})
}
