package lines

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/writer"
)

func TestNumberWord(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"0": "int", "-1": "int", "123456789012345678": "int", "1234567890123456789": "int", "12345678901234567890": "json", "1.5": "float", "-0.5e-3": "float", "1e9": "float",
		"": "txt", "-": "txt", "007": "txt", "-01": "txt", ".5": "txt", "1.": "txt", "1e": "txt", "+1": "txt", "1 ": "txt", "nan": "txt", "0x1": "txt",
	} {
		if got := numberWord([]byte(text)); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

// TestLearned: the kinds are those of all rows, from whatever row a run continued, in chunks of any
// size.
func TestLearned(t *testing.T) {
	t.Parallel()
	in := append(mixed(t), given(t, "wide.jsonl", "{\"n\":1.5}\n{\"n\":2}\n{\"n\":\"x\"}\n")...)
	var whole, cursors []string
	for _, size := range []int{40, 1 << 20} {
		s, err := New(t.Context(), in, Options{chunk: size})
		if err != nil {
			t.Fatal(err)
		}
		src := s.(*lineSource)
		defer src.Close()
		all := []string{src.Cursor()}
		drain := func() string {
			for {
				_, err := src.Next(t.Context())
				var se *writer.SampleError
				switch {
				case errors.Is(err, io.EOF):
					return src.Learned()["kinds"]
				case err != nil && !errors.As(err, &se):
					t.Fatal(err)
				}
				all = append(all, src.Cursor())
			}
		}
		whole = append(whole, drain())
		if cursors == nil {
			cursors = all
		}
		if whole[0] != whole[len(whole)-1] || len(all) != len(cursors) || !strings.Contains(whole[0], `"n.txt":"txt"`) {
			t.Fatalf("%q: %d rows of %d", whole, len(all), len(cursors))
		}
		for i := 0; i < len(cursors); i += 1 + len(cursors)/20 {
			all = nil
			if err := src.Seek(t.Context(), cursors[i]); err != nil {
				t.Fatal(err)
			}
			if got := drain(); got != whole[0] || len(all) != len(cursors)-1-i || len(all) > 0 && all[len(all)-1] != cursors[len(cursors)-1] {
				t.Fatalf("from %s: %s after %d rows, want %s after %d", cursors[i], got, len(all), whole[0], len(cursors)-1-i)
			}
		}
	}
	s, err := New(t.Context(), in, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Seek(t.Context(), "0/0/0/0{"); err == nil {
		t.Error("a cursor with half of its kinds was taken")
	}
	l := learned{}
	for range 100 {
		l.add(strings.Repeat("x", l.bytes+1), "int")
	}
	if l.bytes > maxLearned || l.bytes < maxLearned/2 {
		t.Errorf("%d bytes of names", l.bytes)
	}
}
