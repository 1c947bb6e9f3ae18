package ingest_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/ingest"
	"github.com/shardtool/shardtool/objstore/storetest/s3server"
)

// TestSecrets: nothing that Open says of addresses, in notes, logs and errors, has their queries,
// in which a signature may be.
func TestSecrets(t *testing.T) {
	server := s3server.New(t)
	for name, text := range map[string]string{
		"rows/a.jsonl": `{"id": "a", "x": 1}`, "rows/README.md": "text", "texts/a.txt": "text", "splits/train/a.jsonl": `{"x": 1}`,
		"splits/val/a.jsonl": `{"x": 1}`, "tokens/a.jsonl": `{"ids": [1, 2]}`, "empty/.hidden": "x", "h5/a.h5": "\x89HDF\r\n\x1a\n" + strings.Repeat("x", 600),
	} {
		server.Objects["set/"+name] = s3server.Stored{Data: []byte(text), ETag: s3server.Tag([]byte(text))}
	}
	for name, value := range map[string]string{"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"} {
		t.Setenv(name, value)
	}
	at := func(below string) string {
		return "s3://bucket/set/" + below + "?region=marked-region&endpoint=" + server.URL
	}
	told := 0
	for _, srcs := range [][]string{
		{"rows"}, {"texts"}, {"splits"}, {"tokens"}, {"empty"}, {"h5"}, {"none"}, {"rows", "texts"}, {"rows/*.jsonl"}, {"rows/*.csv"}, {"rows/{a"}, {"texts/a.txt"},
		{"splits/*/*.jsonl"}, {"splits/train/a.jsonl", "splits/val/a.jsonl"}, {"rows#view"}, {"rows@0123456789abcdef"}, {"rows", "rows/a.jsonl"},
	} {
		for _, o := range []ingest.Options{{}, {As: "tar"}, {As: "files"}, {StdinFormat: "tar"}, {LastDot: true}, {Tokens: ingest.Tokens{Length: 4}}, {TextLines: true}} {
			var all bytes.Buffer
			note := func(text string) { fmt.Fprintln(&all, text) }
			o.Note, o.Warn, o.Log = note, note, slog.New(slog.NewTextHandler(&all, nil))
			var addresses []string
			for _, src := range srcs {
				name, mark := src, ""
				if i := strings.IndexAny(src, "#@"); i >= 0 {
					name, mark = src[:i], src[i:]
				}
				addresses = append(addresses, at(name)+mark)
			}
			in, err := ingest.Open(t.Context(), addresses, o)
			if err == nil {
				fmt.Fprintln(&all, in.Kind, in.Source.Fingerprint(), in.Source.Meta())
				if _, err = in.Source.Next(t.Context()); err == nil {
					fmt.Fprintln(&all, in.Source.Cursor())
				}
				in.Close()
			}
			fmt.Fprintf(&all, "%v %+v %#v", err, err, err)
			if err != nil {
				told++
			}
			for _, secret := range []string{"marked", "endpoint="} {
				if i := strings.Index(all.String(), secret); i >= 0 {
					t.Errorf("%q, %+v: %q", srcs, o, all.String()[max(0, i-200):min(all.Len(), i+100)])
				}
			}
		}
		if err := ingest.Inside(t.Context(), []string{at(srcs[0])}, at(srcs[0])); err != nil && strings.Contains(err.Error(), "marked") {
			t.Error(err)
		}
	}
	if told < 30 {
		t.Errorf("only %d errors", told)
	}
}
