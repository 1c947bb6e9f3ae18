package objstore_test

import (
	"testing"

	"github.com/shardtool/shardtool/objstore"
)

func TestRedact(t *testing.T) {
	for text, want := range map[string]string{
		"":                                 "",
		"out/what?.tar":                    "out/what?.tar",
		"a@b: no address":                  "a@b: no address",
		"https://host/a":                   "https://host/a",
		"https://user:secret@host/a":       "https://host/a",
		"https://secret@host":              "https://host",
		"https://user:se@cret@host/a@b":    "https://host/a@b",
		"https://host/a?sig=secret":        "https://host/a",
		"https://host?sig=secret":          "https://host",
		"s3://u:secret@b?sig=secret/x":     "s3://b",
		"s3://bucket@0123456789abcdef":     "s3://bucket@0123456789abcdef",
		"abfss://box@a.dfs.x/p?sig=secret": "abfss://box@a.dfs.x/p",
		"abfss://u:secret@a.dfs.x/p":       "abfss://a.dfs.x/p",
		"s3://b/x?p=secret#view":           "s3://b/x#view",
		"s3://b/x?p=s@0123456789abcdef":    "s3://b/x@0123456789abcdef",
		"get https://u:secret@h/a?b=s: no": "get https://h/a: no",
		`["https://u:secret@h?s=s" "x?y"]`: `["https://h" "x?y"]`,
		"HTTPS://u:secret@h/x?X-Amz-Signature=secret&X-Amz-Credential=secret, then ftp://u:secret@i/y": "HTTPS://h/x, then ftp://i/y",
	} {
		if got := objstore.Redact(text); got != want {
			t.Errorf("Redact(%q) is %q, want %q", text, got, want)
		}
	}
}
