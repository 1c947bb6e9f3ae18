package fields

import (
	"testing"
)

func TestNames(t *testing.T) {
	t.Parallel()
	for in, want := range map[[2]string]string{
		{"text", "txt"}: "text.txt", {"page.html", "txt"}: "page.html", {"jpg", "bin"}: "jpg", {"npy", "npy"}: "npy", {"a.", "txt"}: "a.",
	} {
		if got := Name(in[0], in[1]); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
	for in, want := range map[string]string{"vector": "vector.json", "vector.npy": "vector.json", "npy": "json", "json": "json", "a.b": "a.b", "a.b.npy": "a.b"} {
		if got := JSONName(in); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
	for row, want := range map[int64]string{0: "s/000000000", 7: "s/000000007", 99_999_999: "s/099999999", 123_456_789: "s/123456789", 12_345_678_901: "s/12345678901"} {
		if got := string(AppendRowKey(nil, "s", row)); got != want {
			t.Errorf("%d: %s, want %s", row, got, want)
		}
	}
	if !IsClass("label") || IsClass("labelled") {
		t.Error("names of classes")
	}
}
