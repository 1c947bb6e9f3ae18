package plain_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/shardtool/shardtool/internal/sys/plain"
)

var cases = []struct{ in, text, layout string }{
	{"", "", ""},
	{"dog/7 é 犬 \U0001f415", "dog/7 é 犬 \U0001f415", "dog/7 é 犬 \U0001f415"},
	{`back\slash "quoted"`, `back\slash "quoted"`, `back\slash "quoted"`},
	{"\x1b]0;title\x07\x1b[2J", `\u001b]0;title\u0007\u001b[2J`, `\u001b]0;title\u0007\u001b[2J`},
	{"a\nb\tc\rd", `a\nb\tc\u000dd`, "a\nb\tc\\u000dd"},
	{"\u009b31m\u007f\u0080", `\u009b31m\u007f\u0080`, `\u009b31m\u007f\u0080`},
	{"\u202etxt\u2066\u2069\u200f\u061c\u2028", `\u202etxt\u2066\u2069\u200f\u061c\u2028`, `\u202etxt\u2066\u2069\u200f\u061c\u2028`},
	{"\x9b31m \xff \xe2\x82", `\x9b31m \xff \xe2\x82`, `\x9b31m \xff \xe2\x82`},
	{"\ufffd is a character", "\ufffd is a character", "\ufffd is a character"},
}

func TestText(t *testing.T) {
	for _, c := range cases {
		if got := plain.Text(c.in); got != c.text {
			t.Errorf("Text(%q) = %s, want %s", c.in, got, c.text)
		}
	}
}

// TestWriter cuts the text at every place: characters that are cut stay whole.
func TestWriter(t *testing.T) {
	for _, c := range cases {
		for cut := range len(c.in) + 1 {
			var out bytes.Buffer
			w := plain.NewWriter(&out)
			for _, part := range []string{c.in[:cut], c.in[cut:], "."} {
				if n, err := w.Write([]byte(part)); n != len(part) || err != nil {
					t.Fatal(n, err)
				}
			}
			if out.String() != c.layout+"." {
				t.Errorf("%q cut at %d: %s, want %s", c.in, cut, out.String(), c.layout)
			}
		}
	}
}

// TestWriterJSON: JSON with escapes is still the same JSON.
func TestWriterJSON(t *testing.T) {
	want := "\u009b \u202e \u007f \u2069 é"
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if _, err := plain.NewWriter(&out).Write(text); err != nil {
		t.Fatal(err)
	}
	var got string
	if err := json.Unmarshal(out.Bytes(), &got); err != nil || got != want || bytes.Equal(out.Bytes(), text) {
		t.Errorf("%s: %q, %v", out.Bytes(), got, err)
	}
}
