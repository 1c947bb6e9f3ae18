package ledger

import "testing"

// TestLedgerHash: the known answers are those of the second implementation (python/order_check.py);
// the first is in SPEC.md.
func TestLedgerHash(t *testing.T) {
	for _, c := range []struct {
		blocks  []Block
		hash    string
		samples uint64
	}{
		{nil, "", 0},
		{[]Block{{Shard: "train-000003.tar.zst", Block: 17, Samples: 12}}, "c8117176d1eb443a4bc106e34af19c5f", 12},
		{[]Block{
			{Shard: "b", Block: 2, Samples: 1}, {Shard: "a", Block: 10, Samples: 2}, {Shard: "a", Block: 9, Samples: 3},
			{Shard: "B", Block: 0, Samples: 4}, {Shard: "é", Block: 1, Samples: 5}, {Shard: "a", Block: 10, Samples: 2},
		}, "aa362ea8ae17c6098a310f6d407d80c7", 15},
	} {
		var l Ledger
		for _, b := range c.blocks {
			l.enter(b)
		}
		if m := l.Mark(); m.Hash != c.hash || m.Samples != c.samples {
			t.Errorf("%v: %s of %d samples, want %s of %d", c.blocks, m.Hash, m.Samples, c.hash, c.samples)
		}
		text, err := Append(nil, l.blocks)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Decode(text)
		if err != nil || len(again) != len(l.blocks) {
			t.Errorf("%s: %v, %v", text, again, err)
		}
	}
}
