package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/shardtool/shardtool/bench/table"
)

// writeMarkdown puts tables into a file, each between the two comments that name it, and keeps the
// rest of the file: the tables of the peers that were measured, and the table of all other groups.
// In that one, groups that were not measured keep their rows, unless all groups were to run. A
// table whose comments the file lacks is left out. A file that does not exist is created with all
// tables.
func (b *bench) writeMarkdown(path string, all bool) error {
	old, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		old = []byte(begin("peers") + end("peers") + "\n" + begin("goals") + end("goals") + "\n" + begin("tried") +
			end("tried") + "\n" + begin("summary") + end("summary"))
	} else if err != nil {
		return err
	}
	text, written := string(old), 0
	put := func(name string, table func(was string) (string, error)) error {
		head, was, tail, ok := between(text, name)
		if !ok {
			return nil
		}
		now, err := table(was)
		if err != nil {
			return fmt.Errorf("%s is as it was: %w", path, err)
		}
		text, written = head+now+tail, written+1
		return nil
	}
	if slices.ContainsFunc(b.peers, func(r peerResult) bool { return r.kind != stringsKind.shown }) {
		for name, table := range map[string]func() string{
			"summary": b.summaryMarkdown, "peers": b.peersMarkdown, "tried": b.triedMarkdown,
		} {
			if err := put(name, func(string) (string, error) { return table(), nil }); err != nil {
				return err
			}
		}
		if _, summary, _, ok := between(text, "summary"); ok {
			chart, err := chartOf(summary)
			if err == nil && chart != nil {
				err = os.WriteFile(filepath.Join(filepath.Dir(path), "speed.svg"), chart, 0o644)
			}
			if err != nil {
				return err
			}
		}
	}
	if all || slices.ContainsFunc(b.Rows, ofGoals) {
		if err := put("goals", func(was string) (string, error) { return b.goalsMarkdown(was, all) }); err != nil {
			return err
		}
	}
	if written == 0 {
		return fmt.Errorf("%s is as it was: tables have the names summary, peers, tried and goals, and each goes between lines such as %q and %q",
			path, strings.TrimSpace(begin("peers")), strings.TrimSpace(end("peers")))
	}
	return os.WriteFile(path, []byte(text), 0o644)
}

// ofGoals reports whether a row is in the table of goals. Other systems have separate tables.
func ofGoals(r table.Row) bool { return r.Group != "peers" }

// begin and end are the lines around a table.
func begin(name string) string { return "<!-- table: " + name + " -->\n" }
func end(name string) string   { return "<!-- end: " + name + " -->\n" }

// between returns the text between the two comments of a name, and the text before and after it.
// ok reports whether the comments exist.
func between(text, name string) (head, within, tail string, ok bool) {
	head, rest, begun := strings.Cut(text, begin(name))
	within, tail, ended := strings.Cut(rest, end(name))
	return head + begin(name), within, end(name) + tail, begun && ended
}

func today() string { return time.Now().UTC().Format("2 January 2006") }

// stamp returns the lines that describe where and when figures were measured.
func stamp(lines ...string) string {
	out := "\n"
	for _, line := range lines {
		out += "- " + line + "\n"
	}
	return out + "\n"
}

// summaryMarkdown is a table of the rates alone: a row for each system, a column for each kind of
// data and store.
func (b *bench) summaryMarkdown() string {
	var systems, columns []string
	rates := map[[2]string]string{}
	for _, k := range shownKinds() {
		for _, store := range k.stores {
			column := columnOf(k.shown, store)
			for _, r := range b.peers {
				if r.kind != k.shown || r.Store != store || !r.loads() {
					continue
				}
				if !slices.Contains(systems, r.system) {
					systems = append(systems, r.system)
				}
				if !slices.Contains(columns, column) {
					columns = append(columns, column)
				}
				rates[[2]string{r.system, column}] = r.cells()[0]
			}
		}
	}
	var out strings.Builder
	out.WriteString(stamp(b.peersMachine[:min(1, len(b.peersMachine))]...))
	out.WriteString("| samples/s | " + strings.Join(columns, " | ") + " |\n|---|" +
		strings.Repeat("---:|", len(columns)) + "\n")
	for _, system := range systems {
		out.WriteString("| " + system)
		for _, column := range columns {
			out.WriteString(" | " + cmp.Or(rates[[2]string{system, column}], "–"))
		}
		out.WriteString(" |\n")
	}
	return out.String() + "\n"
}

// peersMarkdown is a table for each kind of data and store, and what was tried.
func (b *bench) peersMarkdown() string {
	var out strings.Builder
	out.WriteString(stamp(b.peersMachine...))
	for _, k := range shownKinds() {
		for _, store := range k.stores {
			of := slices.DeleteFunc(slices.Clone(b.peers),
				func(r peerResult) bool { return r.kind != k.shown || r.Store != store })
			if len(of) == 0 {
				continue
			}
			fmt.Fprintf(&out, "### %s, %s\n\n", strings.ToUpper(k.shown[:1])+k.shown[1:], storeNames[store])
			out.WriteString("| | " + strings.Join(peerColumns, " | ") +
				" |\n|---|---:|---:|---:|---:|---:|---:|---:|---|\n")
			for _, r := range of {
				out.WriteString("| " + r.system + " | " + strings.Join(r.cells(), " | ") + " |\n")
			}
			out.WriteString("\n")
		}
	}
	return out.String()
}

// triedMarkdown lists the settings that were tried.
func (b *bench) triedMarkdown() string {
	var out strings.Builder
	out.WriteString("| data | system | settings |\n|---|---|---|\n")
	for _, r := range b.peers {
		if tried := swept(r); tried != "" {
			tried = strings.ReplaceAll(strings.TrimPrefix(tried, "tried: "), " | ", "<br>")
			fmt.Fprintf(&out, "| %s, %s | %s | %s |\n", r.kind, storeNames[r.Store], r.system, tried)
		}
	}
	return out.String() + "\n"
}

// peerColumns are the columns of the tables of peers, without the name of the system.
var peerColumns = []string{"samples/s", "first epoch", "MB/s", "CPU a sample", "memory", "first batch", "resume",
	"setting"}

// cells are a row of such a table.
func (r peerResult) cells() []string {
	median := func(s table.Sample, shown func(float64) string) string {
		if len(s) == 0 {
			return "–"
		}
		return shown(s.Median())
	}
	memory := "–"
	if len(r.Memory) > 0 {
		memory = fmt.Sprintf("%.0f MiB", slices.Max(r.Memory))
	}
	cold, resume := r.Cold, median(r.Resume, duration)
	if r.Store == "s3" {
		cold = r.Rates
	}
	if r.Way != "" {
		resume += ", " + r.Way
	}
	settings := []string{r.Setting, r.Note, r.Reason}
	if !r.Whole && r.Reason == "" {
		settings = append(settings, "the readings ended before the epoch")
	}
	setting := strings.Join(slices.DeleteFunc(settings, func(s string) bool { return s == "" }), "; ")
	return []string{median(r.Rates, table.Count), median(cold, table.Count),
		median(r.Bytes, func(v float64) string { return fmt.Sprintf("%.0f", v/1e6) }),
		median(r.CPU, duration), memory, median(r.First, duration), table.Cell(resume), table.Cell(setting)}
}

// goalsMarkdown is the table of all groups but peers, which have their own. Unless all were to be
// measured, was is the table that has the rows of others, which must have been measured on the
// same.
func (b *bench) goalsMarkdown(was string, all bool) (string, error) {
	out := stamp(cpuModel(), b.header) + table.MarkdownHead
	kept := ""
	if !all && was != "" {
		var same bool
		if kept, same = strings.CutPrefix(was, out); !same {
			return "", fmt.Errorf("the rows of other groups were measured on something else than %s, %s: run all groups", cpuModel(), b.header)
		}
	}
	var order []string
	fresh, day := map[string]string{}, today()
	for _, r := range b.Rows {
		if !ofGoals(r) {
			continue
		}
		if fresh[r.Group] == "" {
			order = append(order, r.Group)
		}
		fresh[r.Group] += r.Markdown(day)
	}
	for row := range strings.Lines(strings.TrimSpace(kept)) {
		_, cells, _ := strings.Cut(row, "| ")
		group, _, _ := strings.Cut(cells, " |")
		if rows, again := fresh[group]; again {
			out += rows // in place of the first; nothing in place of the others
			fresh[group] = ""
		} else {
			out += strings.TrimSpace(row) + "\n"
		}
	}
	for _, group := range order {
		out += fresh[group]
	}
	return out + "\n", nil
}

// duration is seconds with a unit that suits, to three digits.
func duration(seconds float64) string {
	switch {
	case seconds >= 1:
		return fmt.Sprintf("%.3g s", seconds)
	case seconds >= 1e-3:
		return fmt.Sprintf("%.3g ms", 1e3*seconds)
	}
	return fmt.Sprintf("%.3g µs", 1e6*seconds)
}
