package metadata

import (
	"bytes"
	"encoding/hex"
	"os"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/codec"
	"github.com/shardtool/shardtool/internal/format/names"
	"github.com/shardtool/shardtool/internal/format/samplekey"
)

// workedBytes are the hex blocks of SPEC.md, in order. A line is "offset: bytes  ; words".
func workedBytes(t *testing.T) (text string, blocks [][]byte) {
	t.Helper()
	data, err := os.ReadFile("../../../SPEC.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range strings.Split(string(data), "```hex\n")[1:] {
		body, _, _ := strings.Cut(part, "```")
		var block []byte
		for line := range strings.Lines(body) {
			line, _, _ = strings.Cut(line, ";")
			offset, digits, ok := strings.Cut(line, ":")
			if !ok {
				t.Fatalf("worked bytes: line %q", line)
			}
			b, err := hex.DecodeString(strings.Join(strings.Fields(digits), ""))
			if err != nil {
				t.Fatalf("worked bytes at %s: %v", offset, err)
			}
			block = append(block, b...)
		}
		blocks = append(blocks, block)
	}
	return string(data), blocks
}

// TestWorkedBytes decodes the bytes printed in SPEC.md, and writes them again.
func TestWorkedBytes(t *testing.T) {
	text, blocks := workedBytes(t)
	if len(blocks) != 4 {
		t.Fatalf("%d blocks of hex in SPEC.md", len(blocks))
	}
	shard, keys, tables := blocks[0], blocks[1], blocks[2]
	if made, _, _ := stackedShard(t, false); !bytes.Equal(blocks[3], made) {
		t.Errorf("the stacked shard is written differently today:\n%x\n%x", made, blocks[3])
	}
	samples := []testSample{one("a", "txt", "hello"), one("b", "txt", "world!")}
	got, err := checkShard(shard)
	if err != nil {
		t.Fatal(err)
	}
	same(t, got, samples)
	if made := pack(t, samples, packOptions{}).object(); !bytes.Equal(made, shard) {
		t.Errorf("the shard is written differently today:\n%x\n%x", made, shard)
	}
	if want := goldenKeys(t, []samplekey.Entry{{Hash: samplekey.Hash("a"), Number: 0}, {Hash: samplekey.Hash("b"), Number: 1}}); !bytes.Equal(keys, want) {
		t.Errorf("keys table: %x, not %x", want, keys)
	}
	opened, err := OpenTables(readFrom(tables), int64(len(tables)))
	if err != nil {
		t.Fatal(err)
	}
	m, err := opened.Load()
	if err != nil {
		t.Fatal(err)
	}
	again, name, digest, err := EncodeTables(m)
	if err != nil || !bytes.Equal(again, tables) {
		t.Errorf("tables are written differently today: %v", err)
	}
	if m.Keys != format.BlockHash(keys) || m.Shards[0].Size != uint64(len(shard)) || digest != opened.Digest {
		t.Errorf("tables %+v do not fit keys and shard", m)
	}
	for _, fact := range []string{names.Tables(name), format.DigestString(digest)} {
		if !strings.Contains(text, fact) {
			t.Errorf("SPEC.md does not say %s", fact)
		}
	}
	// The end-of-archive frame that section 3.4 prints.
	if want := strings.TrimSpace(hexSpaced(codec.EndFrame[:11])); !strings.Contains(text, want) {
		t.Errorf("SPEC.md does not print %s", want)
	}
}

func hexSpaced(b []byte) string {
	var s strings.Builder
	for _, c := range b {
		s.WriteString(hex.EncodeToString([]byte{c}) + " ")
	}
	return s.String()
}
