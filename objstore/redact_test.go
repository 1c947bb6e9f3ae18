package objstore_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
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

// TestAddress: no verb of fmt, no encoding and no log shows the secrets of an address, wherever it
// is.
func TestAddress(t *testing.T) {
	const text = "https://user:marked-password@host/train@0123456789abcdef?sig=marked-signature"
	a := objstore.NewAddress(text)
	in := struct {
		A objstore.Address
		b objstore.Address
		c []objstore.Address
		d *objstore.Address
	}{a, a, objstore.Addresses([]string{text}), &a}
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%T"} {
		fmt.Fprintf(&out, verb+verb+verb+verb, a, &a, in, &in)
	}
	for _, log := range []*slog.Logger{slog.New(slog.NewTextHandler(&out, nil)), slog.New(slog.NewJSONHandler(&out, nil))} {
		log.Warn("opening", "address", a, "all", in)
	}
	if err := json.NewEncoder(&out).Encode([]any{a, in, map[objstore.Address]int{a: 1}}); err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"marked", fmt.Sprintf("%x", "marked"), fmt.Sprintf("%X", "marked"), "109 97 114"} {
		if bytes.Contains(out.Bytes(), []byte(secret)) {
			t.Errorf("%q is in %s", secret, out.String())
		}
	}
	var back objstore.Address
	if err := json.Unmarshal([]byte(`"`+text+`"`), &back); err != nil || back.Secret() != text || (objstore.Address{}).String() != "" {
		t.Errorf("%q, %v", back.Secret(), err)
	}
	if want := "https://host/train@0123456789abcdef"; a.String() != want {
		t.Errorf("%v, want %v", a, want)
	}
}
