package tokens_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shardtool/shardtool/internal/format/codec"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/local"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
	"github.com/shardtool/shardtool/writer/source/tokens"
)

// TestCut: a long array becomes samples of a length, and a remainder.
func TestCut(t *testing.T) {
	in := one(t, "shards/train_000.npy", file("<u2", "(10,)", ids16(upTo(100, 10)...)))
	for _, c := range []struct {
		opt  tokens.Options
		want string
	}{
		{tokens.Options{Length: 4}, "[train_000/000000000 [100 101 102 103] -1 train_000/000000001 [104 105 106 107] -1 train_000/000000002 [108 109] -1]"},
		{tokens.Options{Length: 4, Remainder: tokens.Pad, PadID: 7}, "[train_000/000000000 [100 101 102 103] -1 train_000/000000001 [104 105 106 107] -1 train_000/000000002 [108 109 7 7] 2]"},
		{tokens.Options{Length: 4, Remainder: tokens.Drop}, "[train_000/000000000 [100 101 102 103] -1 train_000/000000001 [104 105 106 107] -1]"},
		{tokens.Options{Length: 5, Remainder: tokens.Pad}, "[train_000/000000000 [100 101 102 103 104] -1 train_000/000000001 [105 106 107 108 109] -1]"},
		{tokens.Options{Length: 20}, "[train_000/000000000 [100 101 102 103 104 105 106 107 108 109] -1]"},
		{tokens.Options{Length: 11, Remainder: tokens.Drop}, "[]"},
		{tokens.Options{}, "[train_000 [100 101 102 103 104 105 106 107 108 109] -1]"},
	} {
		src := arrays(t, in, c.opt)
		var text []string
		samples := whole(t, src)
		size := int64(0)
		for _, s := range samples {
			text = append(text, fmt.Sprint(s.key, " ", s.ids, " ", s.real))
			if s.descr != "<u2" || s.shape != fmt.Sprintf("(%d,)", len(s.ids)) {
				t.Errorf("%+v: %s %s", c.opt, s.descr, s.shape)
			}
			size += int64(len(s.raw["tokens.npy"]))
		}
		if fmt.Sprint(text) != c.want {
			t.Errorf("%+v: %v, want %s", c.opt, text, c.want)
		}
		n, bytes := src.Total()
		if sum := src; n != int64(len(samples)) || c.opt.Remainder == tokens.Keep && bytes != size || sum.Samples != n || sum.Tokens+sum.Dropped != 10 {
			t.Errorf("%+v: %d samples, %d bytes, %+v; there are %d of %d", c.opt, n, bytes, sum, len(samples), size)
		}
	}
}

// TestRows: each row of an array of more dimensions is a sample, with the dimensions it has.
func TestRows(t *testing.T) {
	in := one(t, "a.npy", file("<u2", "(3, 2)", ids16(upTo(0, 6)...)))
	got := whole(t, arrays(t, in, tokens.Options{}))
	if len(got) != 3 || got[2].key != "a/000000002" || got[2].shape != "(2,)" || !slices.Equal(got[2].ids, []int64{4, 5}) || got[1].raw["tokens.npy"] == "" {
		t.Errorf("%+v", got)
	}
	in = one(t, "a.npy", file("<u2", "(2, 1, 3)", ids16(upTo(0, 6)...)))
	if got = whole(t, arrays(t, in, tokens.Options{Length: 3})); len(got) != 2 || got[1].shape != "(1, 3)" || !slices.Equal(got[1].ids, []int64{3, 4, 5}) {
		t.Errorf("%+v", got)
	}
	_, err := tokens.NewArrays(t.Context(), in, tokens.Options{Length: 4})
	if !errors.Is(err, writer.ErrOptions) || !strings.Contains(err.Error(), "a.npy has rows of 3 tokens, not 4") {
		t.Error(err)
	}
}

// TestHeaderOfLLMC: the header of llm.c declares the type.
func TestHeaderOfLLMC(t *testing.T) {
	header := func(mark, version, ids uint32, content []byte) []byte {
		head := binary.LittleEndian.AppendUint32(nil, mark)
		head = binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(head, version), ids)
		return append(append(head, make([]byte, 1024-12)...), content...)
	}
	for _, raw := range []tokens.DType{0, tokens.Uint16} {
		got := whole(t, arrays(t, one(t, "fineweb.bin", header(20240520, 1, 5, ids16(upTo(1, 5)...))), tokens.Options{Length: 4, Raw: raw}))
		if !slices.Equal(joined(got), upTo(1, 5)) || got[1].key != "fineweb/000000001" {
			t.Error(got)
		}
	}
	got := whole(t, arrays(t, one(t, "x.bin", header(20240801, 7, 2, []byte{1, 0, 0, 0, 2, 0, 0, 0})), tokens.Options{Length: 4}))
	if !slices.Equal(joined(got), []int64{1, 2}) || got[0].descr != "<u4" {
		t.Error(got)
	}
	for want, c := range map[string]struct {
		content []byte
		raw     tokens.DType
	}{
		"it has 4 ids, its header says 5":          {header(20240520, 1, 5, ids16(upTo(1, 4)...)), 0},
		"has a header that says uint16, not int32": {header(20240520, 1, 5, ids16(upTo(1, 5)...)), tokens.Int32},
		"the header is truncated":                  {header(20240520, 1, 5, nil)[:12], 0},
		"say what type its ids are":                {header(20240520, 2, 5, ids16(upTo(1, 5)...)), 0},
	} {
		_, err := tokens.NewArrays(t.Context(), one(t, "x.bin", c.content), tokens.Options{Length: 4, Raw: c.raw})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "x.bin") {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestTypes: every type is read, either byte first, and written as every type that has room.
func TestTypes(t *testing.T) {
	kinds := []string{"|u1", "<u2", "<u4", "<u8", "|i1", "<i2", "<i4", "<i8"}
	for from, descr := range kinds {
		size := int(descr[2] - '0')
		for _, big := range []bool{false, true} {
			var content []byte
			for id := range int64(100) {
				b := binary.LittleEndian.AppendUint64(nil, uint64(id))[:size]
				if big {
					slices.Reverse(b)
				}
				content = append(content, b...)
			}
			if big && size > 1 {
				descr = ">" + descr[1:]
			}
			for to := tokens.Uint8; to <= tokens.Int64; to++ {
				src := arrays(t, one(t, "x.npy", file(descr, "(100,)", content)), tokens.Options{Length: 30, DType: to})
				got := whole(t, src)
				if !slices.Equal(joined(got), upTo(0, 100)) || got[0].descr != kinds[to-1] {
					t.Errorf("%s (%d) to %v: %v %s", descr, from, to, joined(got), got[0].descr)
				}
			}
		}
	}
	for to := tokens.Uint8; to <= tokens.Int64; to++ {
		if back, err := tokens.ParseDType(to.String()); err != nil || back != to {
			t.Error(to, back, err)
		}
	}
	if _, err := tokens.ParseDType(""); err == nil {
		t.Error("no name is a type")
	}
}

// TestMisfits: the error of an id that does not fit has its position in the array, and only its
// sample is skipped.
func TestMisfits(t *testing.T) {
	for _, c := range []struct {
		descr string
		bad   uint64
		to    tokens.DType
		want  string
	}{
		{"<i4", 65536, tokens.Uint16, "token 777 is 65536, which uint16 has no room for"},
		{"<i4", 1<<32 - 1, tokens.Uint16, "token 777 is -1, which uint16"},
		{"<u8", 1<<63 + 5, tokens.Int64, "token 777 is 9223372036854775813, which int64"},
		{"<u8", 1<<64 - 1, tokens.Int8, "token 777 is 18446744073709551615, which int8"},
		{"<i8", 1<<64 - 1, tokens.Uint64, "token 777 is -1, which uint64"},
		{"<u4", 1 << 31, tokens.Int32, "token 777 is 2147483648, which int32"},
		{"<i2", 128, tokens.Int8, "token 777 is 128, which int8"},
		{"<u2", 256, tokens.Uint8, "token 777 is 256, which uint8"},
	} {
		size := int(c.descr[2] - '0')
		content := make([]byte, 1000*size)
		copy(content[777*size:], binary.LittleEndian.AppendUint64(nil, c.bad)[:size])
		in := one(t, "x.npy", file(c.descr, "(1000,)", content))
		for _, length := range []int64{10, 600, 0} {
			got, skipped, err := all(t, arrays(t, in, tokens.Options{Length: length, DType: c.to}))
			if err != nil || len(skipped) != 1 || !strings.Contains(skipped[0].Error(), c.want) || !strings.HasPrefix(skipped[0].Error(), "x.npy: ") {
				t.Errorf("%s to %v: %v %v", c.descr, c.to, skipped, err)
			}
			if want := map[int64]int{10: 99, 600: 1, 0: 0}[length]; len(got) != want {
				t.Errorf("%d samples, want %d", len(got), want)
			}
		}
	}
	in := one(t, "x.npy", file("<u8", "(1,)", binary.LittleEndian.AppendUint64(nil, 1<<64-1)))
	if got := whole(t, arrays(t, in, tokens.Options{})); got[0].ids[0] != -1 { // the same 64 bits
		t.Error(got)
	}
}

// TestLarge: samples above an extent are read in pieces, from a remote store too, and padding may
// be longer than that.
func TestLarge(t *testing.T) {
	ids := make([]byte, 5<<18)
	rng := rand.NewChaCha8([32]byte{1})
	_, _ = rng.Read(ids)
	st := mem.New()
	for _, store := range []objstore.Store{st, far{st}} {
		in := put(t, store, "x.npy", file("<u2", fmt.Sprintf("(%d,)", len(ids)/2), ids))
		for _, opt := range []tokens.Options{{}, {Length: 350_001}, {Length: 300_000, DType: tokens.Int64, Remainder: tokens.Pad, PadID: 3}, {Length: 1 << 21, Remainder: tokens.Pad}} {
			samples := whole(t, arrays(t, []source.Input{in}, opt))
			got := joined(samples)
			for i := range len(ids) / 2 {
				if got[i] != int64(binary.LittleEndian.Uint16(ids[2*i:])) {
					t.Fatalf("%+v: token %d is %d", opt, i, got[i])
				}
			}
			for _, id := range got[len(ids)/2:] {
				if id != opt.PadID {
					t.Fatalf("padded with %d", id)
				}
			}
			if opt.Remainder == tokens.Pad && len(got)%int(opt.Length) != 0 {
				t.Fatal("not padded")
			}
		}
	}
}

// far is a remote store.
type far struct{ objstore.Store }

func (far) Traits() objstore.Traits { return objstore.Traits{Requests: 4} }

func sample(t testing.TB) []source.Input {
	st := mem.New()
	return []source.Input{
		put(t, st, "a/x.npy", file("<u2", "(1003,)", ids16(upTo(0, 1003)...))),
		put(t, st, "empty.npy", file("<u2", "(0,)", nil)),
		put(t, st, "rows.npy", file(">u2", "(3, 4)", make([]byte, 24))),
		put(t, st, "none.npy", file("<u2", "(0, 7)", nil)),
		put(t, st, "b/x.npy", file("<u2", "(7,)", ids16(upTo(5000, 7)...))),
		put(t, st, "c.bin", ids16(upTo(6000, 9)...)),
	}
}

// TestSeekAndSplit: every cursor is followed by the same samples as the first time, and any number
// of parts is together the whole.
func TestSeekAndSplit(t *testing.T) {
	in := sample(t)
	opt := tokens.Options{Length: 4, Raw: tokens.Uint16}
	src := arrays(t, in, opt)
	var cursors []string
	for range 10000 {
		cursors = append(cursors, src.Cursor())
		if _, err := src.Next(t.Context()); err != nil {
			break
		}
	}
	want := whole(t, arrays(t, in, opt))
	if len(want) != 251+3+2+3 || len(cursors) != len(want)+1 || want[254].key != "b/x/000000000" || want[258].key != "c/000000002" {
		t.Fatal(len(want), len(cursors), want[254].key, want[258].key)
	}
	other := arrays(t, in, opt)
	for i := range 60 {
		i = i * 97 % len(cursors)
		if err := other.Seek(t.Context(), cursors[i]); err != nil || other.Cursor() != cursors[i] {
			t.Fatal(err, other.Cursor())
		}
		if got := whole(t, other); !slices.EqualFunc(got, want[i:], same) {
			t.Fatalf("from %s: %d samples, want %d", cursors[i], len(got), len(want)-i)
		}
	}
	for _, bad := range []string{"", "x", "-1", "260", "1 ", "01", "1/2"} {
		if src.Seek(t.Context(), bad) == nil {
			t.Errorf("%q is a cursor", bad)
		}
	}
	for _, parts := range []int{1, 2, 3, 7, 258, 259, 260, 1000} {
		var got []got
		_, whole64 := other.Total()
		bytes := int64(0)
		for part := range parts {
			p := arrays(t, in, opt)
			_, whole64 = p.Total()
			if err := p.Split(part, parts); err != nil {
				t.Fatal(err)
			}
			begin := p.Cursor()
			n, size := p.Total()
			some := whole(t, p)
			if int64(len(some)) != n || p.Fingerprint() != src.Fingerprint() {
				t.Fatalf("part %d of %d: %d samples of %d", part, parts, len(some), n)
			}
			if err := p.Seek(t.Context(), begin); err != nil || len(whole(t, p)) != len(some) {
				t.Fatal("not again", err)
			}
			got, bytes = append(got, some...), bytes+size
		}
		if !slices.EqualFunc(got, want, same) || bytes != whole64 {
			t.Errorf("%d parts: %d samples, want %d; %d bytes of %d", parts, len(got), len(want), bytes, whole64)
		}
	}
	for _, bad := range [][2]int{{0, 0}, {-1, 2}, {2, 2}} {
		if src.Split(bad[0], bad[1]) == nil {
			t.Error(bad)
		}
	}
}

// TestSplitHuge divides more samples than products of 64 bits have room for.
func TestSplitHuge(t *testing.T) {
	src := arrays(t, one(t, "x.npy", file("|u1", "(5,)", make([]byte, 5))), tokens.Options{Length: 1})
	const parts = 1 << 62
	for _, c := range []struct {
		part int
		want string
	}{{0, "0"}, {1, "1"}, {parts / 5, "1"}, {parts/5 + 1, "2"}, {parts - 1, "5"}} {
		if err := src.Split(c.part, parts); err != nil || src.Cursor() != c.want {
			t.Errorf("part %d begins at %s, want %s (%v)", c.part, src.Cursor(), c.want, err)
		}
	}
}

// TestPacked packs by several workers, in blocks that are smaller than what is read at once, and
// reads it all back.
func TestPacked(t *testing.T) {
	ids := make([]byte, 1<<20)
	rng := rand.NewChaCha8([32]byte{2})
	_, _ = rng.Read(ids)
	in := []source.Input{put(t, far{mem.New()}, "x.npy", file(">u2", "(524288,)", ids))}
	for _, length := range []int64{1000, 2048, 1 << 17} {
		src := arrays(t, in, tokens.Options{Length: length, DType: tokens.Uint32})
		set := pack(t, src, writer.Options{BlockSize: 64 << 10, ShardSize: 1 << 20, Workers: 4, Level: codec.LevelFastest})
		at := 0
		for _, s := range set.Samples {
			_, _, got := parse(t, s.Field("tokens.npy"))
			for _, id := range got {
				if want := int64(binary.BigEndian.Uint16(ids[2*at:])); id != want {
					t.Fatalf("token %d is %d, want %d", at, id, want)
				}
				at++
			}
		}
		if at != len(ids)/2 {
			t.Fatal(at)
		}
	}
}

// TestChanged: a file that changed since its header was read is an error, however it is read.
func TestChanged(t *testing.T) {
	dir := t.TempDir()
	st, err := local.New(dir, local.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	content := file("<u2", "(1000,)", make([]byte, 2000))
	for _, length := range []int64{10, 0} {
		in := put(t, st, "x.npy", content)
		src := arrays(t, []source.Input{in}, tokens.Options{Length: length})
		s, err := src.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		put(t, st, "x.npy", content) // the same bytes at another time
		if _, err := read(t, s); !errors.Is(err, objstore.ErrChanged) {
			t.Error(err)
		}
		if err := st.Delete(t.Context(), "x.npy"); err != nil {
			t.Fatal(err)
		}
		if _, err := read(t, s); err == nil {
			t.Error("read what is not there")
		}
	}
}

// TestFingerprint changes with what a pack depends on, and with nothing else.
func TestFingerprint(t *testing.T) {
	dir := t.TempDir()
	st, err := local.New(dir, local.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	a := put(t, st, "a.npy", file("<u2", "(10,)", make([]byte, 20)))
	b := put(t, st, "b.npy", file("<u2", "(10,)", make([]byte, 20)))
	print := func(opt tokens.Options, in ...source.Input) string { return arrays(t, in, opt).Fingerprint() }
	before := print(tokens.Options{Length: 4}, a)
	moved := a
	moved.Path = "/elsewhere/a.npy"
	if print(tokens.Options{Length: 4, DType: tokens.Uint16}, moved) != before {
		t.Error("the folder or a default matters")
	}
	seen := map[string]string{before: "before"}
	check := func(what, got string) {
		t.Helper()
		if old, ok := seen[got]; ok {
			t.Errorf("%s has the fingerprint of %s", what, old)
		}
		seen[got] = what
	}
	check("length", print(tokens.Options{Length: 5}, a))
	check("type", print(tokens.Options{Length: 4, DType: tokens.Int32}, a))
	check("pad", print(tokens.Options{Length: 4, Remainder: tokens.Pad}, a))
	check("pad with 1", print(tokens.Options{Length: 4, Remainder: tokens.Pad, PadID: 1}, a))
	check("drop", print(tokens.Options{Length: 4, Remainder: tokens.Drop}, a))
	check("files", print(tokens.Options{Length: 4}, a, b))
	check("order", print(tokens.Options{Length: 4}, b, a))
	time.Sleep(20 * time.Millisecond) // the store gives later files later times
	put(t, st, "a.npy", file("<u2", "(10,)", make([]byte, 20)))
	check("time", print(tokens.Options{Length: 4}, a))
}

// TestOptions: the error of an invalid option names it, before a byte is read.
func TestOptions(t *testing.T) {
	in := sample(t)
	for _, c := range []struct {
		opt  tokens.Options
		want string
	}{
		{tokens.Options{Length: -1}, "length: -1 tokens"},
		{tokens.Options{Length: 1 << 50}, "length: "},
		{tokens.Options{Length: 4}, "raw: c.bin does not end in .npy: say what type its ids are"},
		{tokens.Options{Remainder: tokens.Pad}, "remainder: pad makes sense only with a length"},
		{tokens.Options{Length: 4, Raw: tokens.Uint16, Remainder: tokens.Pad, PadID: 65536}, "pad: id 65536 does not fit into uint16"},
		{tokens.Options{Length: 4, Raw: tokens.Uint8}, "dtype: a/x.npy has uint16 and c.bin has uint8: say which"},
		{tokens.Options{Length: 4, Raw: 77}, "none of this package's constants"},
	} {
		if _, err := tokens.NewArrays(t.Context(), in, c.opt); !errors.Is(err, writer.ErrOptions) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.opt, err, c.want)
		}
	}
	if _, err := tokens.NewArrays(t.Context(), nil, tokens.Options{}); !errors.Is(err, writer.ErrOptions) {
		t.Error(err)
	}
	if _, err := tokens.NewArrays(t.Context(), []source.Input{in[0], in[0]}, tokens.Options{}); !errors.Is(err, writer.ErrOptions) || !strings.Contains(err.Error(), "given twice") {
		t.Error(err)
	}
}
