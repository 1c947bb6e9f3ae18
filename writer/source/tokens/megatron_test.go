package tokens_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
	"github.com/shardtool/shardtool/writer/source/tokens"
)

// megatron makes an index of uint16 and its .bin file by hand: sequences of these lengths, and the
// bounds of documents, by default a document for each.
func megatron(lengths []int, bounds ...int64) (idx, bin []byte) {
	if bounds == nil {
		bounds = upTo(0, len(lengths)+1)
	}
	idx = append([]byte("MMIDIDX\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00"), 8)
	idx = append(idx, ids64(int64(len(lengths)), int64(len(bounds)))...)
	var offsets []byte
	for _, n := range lengths {
		idx = binary.LittleEndian.AppendUint32(idx, uint32(n))
		offsets = append(offsets, ids64(int64(len(bin)))...)
		bin = append(bin, ids16(upTo(len(bin)/2, n)...)...)
	}
	return append(append(idx, offsets...), ids64(bounds...)...), bin
}

func indexed(t testing.TB, idx, bin []byte) []source.Input {
	st := mem.New()
	put(t, st, "a.bin", bin)
	return []source.Input{put(t, st, "a.idx", idx)}
}

// TestMegatron: documents are samples, rows where they are equal, and are cut and joined.
func TestMegatron(t *testing.T) {
	t.Parallel()
	lengths := make([]int, 3000)
	for i := range lengths {
		lengths[i] = i * 7 % 50
	}
	lengths[100] = 2 << 20 // longer than what documents share
	idx, bin := megatron(lengths)
	docs := whole(t, arrays(t, indexed(t, idx, bin), tokens.Options{}))
	if len(docs) != len(lengths) || docs[17].key != "a/000000017" || docs[17].descr != "<u2" {
		t.Fatalf("%d documents, the 18th is %+v", len(docs), docs[17])
	}
	at := 0
	for i, n := range lengths {
		if d := docs[i]; len(d.ids) != n || n > 0 && (d.ids[0] != int64(at&0xffff) || d.ids[n-1] != int64((at+n-1)&0xffff)) {
			t.Fatalf("document %d has %d ids, from %v, want %d from %d", i, len(d.ids), d.ids[:min(len(d.ids), 1)], n, at&0xffff)
		}
		at += n
	}
	ids := joined(docs)
	cut := arrays(t, indexed(t, idx, bin), tokens.Options{Length: 1000, Remainder: tokens.Drop})
	if cut.Tokens+cut.Dropped != int64(len(ids)) || !slices.Equal(joined(whole(t, cut)), ids[:cut.Tokens]) {
		t.Errorf("cut: %d tokens of %d, and %d dropped", cut.Tokens, len(ids), cut.Dropped)
	}
	src := arrays(t, indexed(t, idx, bin), tokens.Options{Mixed: true})
	if got := joined(whole(t, join(t, src, tokens.JoinOptions{Length: 4096, DType: tokens.Uint16}))); !slices.Equal(got, ids) {
		t.Errorf("joined: %d ids of %d", len(got), len(ids))
	}
	var parts []got
	for part := range 3 {
		src := arrays(t, indexed(t, idx, bin), tokens.Options{})
		if err := src.Split(part, 3); err != nil {
			t.Fatal(err)
		}
		n, _ := src.Total()
		more := whole(t, src)
		if parts = append(parts, more...); int64(len(more)) != n {
			t.Errorf("part %d: %d samples of %d", part, len(more), n)
		}
	}
	if !slices.EqualFunc(parts, docs, same) {
		t.Error("parts are not the whole")
	}
	src = arrays(t, indexed(t, idx, bin), tokens.Options{})
	if err := src.Seek(t.Context(), "2990"); err != nil || !slices.EqualFunc(whole(t, src), docs[2990:], same) {
		t.Error("the rest", err)
	}

	idx, bin = megatron([]int{2, 1, 0, 3, 3}, 0, 2, 2, 4, 5) // sentences
	docs = whole(t, arrays(t, indexed(t, idx, bin), tokens.Options{}))
	if len(docs) != 4 || len(docs[0].ids) != 3 || len(docs[1].ids) != 0 || len(docs[2].ids) != 3 || docs[3].ids[2] != 8 {
		t.Errorf("%+v", docs)
	}
	idx, bin = megatron([]int{4, 4, 4})
	rows := arrays(t, indexed(t, idx, bin), tokens.Options{})
	set := pack(t, rows, writer.Options{Layout: writer.LayoutStacked})
	if len(set.Samples) != 3 || set.Samples[2].Key != "a/000000002" {
		t.Errorf("%+v", set.Samples)
	}
	if idx, bin = megatron(nil); len(whole(t, arrays(t, indexed(t, idx, bin), tokens.Options{}))) != 0 {
		t.Error("samples of nothing")
	}
}

// TestMegatronBad: an index that lies is refused with a reason.
func TestMegatronBad(t *testing.T) {
	t.Parallel()
	idx, bin := megatron([]int{2, 3, 4})
	const lengths, offsets, bounds = 34, 34 + 12, 34 + 36
	change := func(at int, by ...byte) []byte {
		return append(append(bytes.Clone(idx[:at]), by...), idx[at+len(by):]...)
	}
	for want, idx := range map[string][]byte{
		"it is not an index of Megatron": []byte("MMIDIDX"), "its header is truncated": idx[:30], "of version 2": change(9, 2), "floating-point": change(17, 7),
		"its type has the code 9": change(17, 9), "its header says 1099511627779 sequences": change(23, 1), "0 bounds": change(26, 0),
		"a mode for each": append(bytes.Clone(idx), 0, 0, 0), "8 bytes follow it": append(bytes.Clone(idx), make([]byte, 8)...), "it is cut off": idx[:len(idx)-1],
		"document 1, sequence 1: 300 tokens at byte 4 are not": change(lengths+4, 44, 1), "document 1, sequence 1: -1 tokens": change(lengths+4, 255, 255, 255, 255),
		"sequence 2: 4 tokens at byte 65546": change(offsets+16+2, 1), "at byte 11 are not": change(offsets+16, 11), "-72057594037927926": change(offsets+23, 255),
		"begins with sequence 1": change(bounds, 1), "document 1 has the sequences 1 to 0": change(bounds+16, 0), "of 3": change(bounds+16, 9),
		"1 sequences are in no document": change(bounds+24, 2),
	} {
		_, err := tokens.NewArrays(t.Context(), indexed(t, idx, bin), tokens.Options{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	apart := change(offsets, 8) // sequence 0 where the last one is
	if _, err := tokens.NewArrays(t.Context(), indexed(t, apart, bin), tokens.Options{Length: 2}); !errors.Is(err, writer.ErrOptions) {
		t.Error(err)
	}
	st := mem.New()
	if _, err := tokens.NewArrays(t.Context(), []source.Input{put(t, st, "a.idx", idx)}, tokens.Options{}); err == nil || !strings.Contains(err.Error(), "a.bin") {
		t.Error(err)
	}
}

// FuzzIndex: no index causes a panic, a hang or a large allocation, and what is read of one that is
// accepted lies in its .bin file.
func FuzzIndex(f *testing.F) {
	idx, bin := megatron([]int{2, 3, 0, 4}, 0, 2, 2, 4)
	f.Add(idx, int64(0))
	f.Add(idx[:60], int64(2))
	f.Fuzz(func(t *testing.T, idx []byte, length int64) {
		src, err := tokens.NewArrays(t.Context(), indexed(t, idx, bin), tokens.Options{Length: length})
		if err != nil {
			return
		}
		defer src.Close()
		_, skipped, err := all(t, src)
		if err != nil || len(skipped) > 0 {
			t.Fatal(err, skipped)
		}
	})
}
