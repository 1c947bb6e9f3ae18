package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/bench/table"
)

func TestMarkdownLeavesTheRestOfAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page.md")
	const page = "# A page\n\n<!-- table: peers -->\nold\n<!-- end: peers -->\nbehind\n"
	if err := os.WriteFile(path, []byte(page), 0o600); err != nil {
		t.Fatal(err)
	}
	met := true
	b := &bench{Table: table.Table{Rows: []table.Row{{Group: "read", Name: "a | b", Value: 1234, Low: 1, High: 1, Unit: "x", Met: &met, Goal: "≥ 2"}}}}
	if err := b.writeMarkdown(path, true); err == nil || !strings.Contains(err.Error(), "table: peers") {
		t.Errorf("a page without a place for what was measured: %v", err)
	}
	p := &peersBench{bench: b, group: "peers"}
	for _, r := range []peerResult{
		{Store: "local", kind: "text 3 KB", system: "One", Setting: "defaults", Rates: table.Sample{12_345}, Bytes: table.Sample{5e7}, CPU: table.Sample{2e-6},
			Memory: table.Sample{100, 120}, Whole: true, First: table.Sample{0.05}, Resume: table.Sample{1.5}, Way: "exact"},
		{Store: "s3", kind: "text 3 KB", system: "Two", Reason: "no route"},
		{Store: "local", kind: "images 100 KB", system: "Floor", Rates: table.Sample{7}, Bytes: table.Sample{7e5}, CPU: table.Sample{1}},
	} {
		b.peers = append(b.peers, r)
		p.addPeer(r)
	}
	if err := b.writeMarkdown(path, true); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	if !strings.HasPrefix(text, "# A page\n\n<!-- table: peers -->\n") || !strings.HasSuffix(text, "<!-- end: peers -->\nbehind\n") || strings.Contains(text, "old") {
		t.Errorf("around the table:\n%s", text)
	}
	for _, want := range []string{
		"### Text 3 KB, local disk", "| One | 12,300 | – | 50 | 2 µs | 120 MiB | 50 ms | 1.5 s, exact | defaults |",
		"| Two | – | – | – | – | – | – | – | no route |", "| Floor | 7 | – | 1 | 1 s | – | – | – |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "| read |") {
		t.Error("the table of all groups is in a page that has no place for it")
	}

	if _, err := os.Stat(filepath.Join(filepath.Dir(path), "speed.svg")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a chart beside a page without the summary: %v", err)
	}

	fresh := filepath.Join(t.TempDir(), "new.md")
	if err := b.writeMarkdown(fresh, true); err != nil {
		t.Fatal(err)
	}
	if data, err = os.ReadFile(fresh); err != nil || !strings.Contains(string(data), `| read | a \| b | 1,230 x |  | ≥ 2 | met |`) {
		t.Errorf("a new page: %v\n%s", err, data)
	}
	if _, peers, _, ok := between(string(data), "peers"); !ok || !strings.Contains(peers, "### Text 3 KB") || !strings.HasPrefix(string(data), begin("peers")) {
		t.Errorf("the table of the peers is not between its lines in a new page:\n%s", data)
	}
}

// TestMarkdownSummary: the rates of all kinds in one table, with a chart beside the page.
func TestMarkdownSummary(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(path, []byte(begin("summary")+end("summary")), 0o600); err != nil {
		t.Fatal(err)
	}
	b := &bench{peersMachine: []string{"today: this machine", "more"}, peers: []peerResult{
		{Store: "local", kind: "text 3 KB", system: "One", Rates: table.Sample{12_345}},
		{Store: "s3", kind: "text 3 KB", system: "One", Reason: "no route"},
		{Store: "local", kind: "images 100 KB", system: "Two", Rates: table.Sample{7}},
	}}
	if err := b.writeMarkdown(path, true); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const want = "\n- today: this machine\n\n| samples/s | Text 3 KB, local disk | Text 3 KB, S3 | Images 100 KB, local disk |\n" +
		"|---|---:|---:|---:|\n| One | 12,300 | – | – |\n| Two | – | – | 7 |\n\n"
	if string(text) != begin("summary")+want+end("summary") {
		t.Errorf("the summary is\n%s", text)
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(path), "speed.svg")); err != nil {
		t.Error(err)
	}
}

// TestMarkdownOfSomeGroups has groups measured anew, which leave the rows of others alone.
func TestMarkdownOfSomeGroups(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page.md")
	write := func(header string, all bool, groups ...string) (string, error) {
		b := &bench{header: header}
		for _, group := range groups {
			name, text, _ := strings.Cut(group, " ")
			b.Info(name, text, table.One(1), "x", "")
		}
		failed := b.writeMarkdown(path, all)
		page, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var rows []string
		for line := range strings.Lines(string(page)) {
			if cells := strings.Split(line, " | "); len(cells) == 8 && cells[0] != "| group" {
				rows = append(rows, strings.TrimPrefix(cells[0], "| ")+" "+cells[1])
			}
		}
		return strings.Join(rows, ", "), failed
	}
	for _, step := range []struct {
		all    bool
		groups []string
		want   string
	}{
		{true, []string{"a 1", "a 2", "b 1", "peers 1", "c 1"}, "a 1, a 2, b 1, c 1"},
		{false, []string{"b 3", "b 4", "d 1"}, "a 1, a 2, b 3, b 4, c 1, d 1"},
		{true, []string{"a 5", "c 2"}, "a 5, c 2"},
	} {
		if got, err := write("here", step.all, step.groups...); err != nil || got != step.want {
			t.Errorf("%v: the page has %s, not %s: %v", step.groups, got, step.want, err)
		}
	}
	if got, err := write("elsewhere", false, "peers 3"); err == nil || strings.Contains(err.Error(), "run all groups") || got != "a 5, c 2" {
		t.Errorf("peers of another machine: %s, %v", got, err)
	}
	if got, err := write("elsewhere", false, "a 6"); err == nil || !strings.Contains(err.Error(), "run all groups") || got != "a 5, c 2" {
		t.Errorf("rows of two machines: %s, %v", got, err)
	}
}

func TestDuration(t *testing.T) {
	for v, want := range map[float64]string{2.345: "2.35 s", 0.0512: "51.2 ms", 0.000001: "1 µs"} {
		if got := duration(v); got != want {
			t.Errorf("%v s is shown as %s, not %s", v, got, want)
		}
	}
}
