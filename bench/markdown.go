package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/shardtool/shardtool/bench/table"
)

// writeMarkdown puts tables into a file, each between two comments that say which it is, and leaves all else as it is: that
// of the peers when they were measured, that of all groups when all of them were. A table whose comments the file does not
// have is left out. A file that is not there is made, and has all of them.
func (b *bench) writeMarkdown(path string, all bool) error {
	tables := map[string]string{}
	if len(b.peers) > 0 {
		tables["peers"] = b.peersMarkdown()
	}
	if all {
		tables["goals"] = b.goalsMarkdown()
	}
	old, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		old = []byte(begin("peers") + end("peers") + "\n" + begin("goals") + end("goals"))
	} else if err != nil {
		return err
	}
	text, written := string(old), 0
	for name, table := range tables {
		if replaced, ok := between(text, name, table); ok {
			text, written = replaced, written+1
		}
	}
	if written == 0 {
		return fmt.Errorf("%s is as it was: there are tables of the group peers and of all groups together, and each goes between lines such as %q and %q",
			path, strings.TrimSpace(begin("peers")), strings.TrimSpace(end("peers")))
	}
	return os.WriteFile(path, []byte(text), 0o644)
}

// begin and end are the lines around a table.
func begin(name string) string { return "<!-- table: " + name + " -->\n" }
func end(name string) string   { return "<!-- end: " + name + " -->\n" }

// between replaces what stands between the lines of a name, if they are there.
func between(text, name, table string) (string, bool) {
	head, rest, ok := strings.Cut(text, begin(name))
	_, tail, ended := strings.Cut(rest, end(name))
	return head + begin(name) + table + end(name) + tail, ok && ended
}

// stamp says when and on what something was measured, a line each.
func stamp(lines ...string) string {
	out := "\n- " + time.Now().UTC().Format("2 January 2006") + "\n"
	for _, line := range lines {
		out += "- " + line + "\n"
	}
	return out + "\n"
}

// peersMarkdown is a table for each kind of data and store, and what was tried.
func (b *bench) peersMarkdown() string {
	var out strings.Builder
	out.WriteString(stamp(b.peersMachine...))
	for _, k := range peerKinds {
		for _, store := range []string{"local", "s3"} {
			of := slices.DeleteFunc(slices.Clone(b.peers), func(r peerResult) bool { return r.kind != k.shown || r.Store != store })
			if len(of) == 0 {
				continue
			}
			fmt.Fprintf(&out, "### %s, %s\n\n", strings.ToUpper(k.shown[:1])+k.shown[1:], storeNames[store])
			out.WriteString("| | samples/s | MB/s | CPU a sample | memory | first batch | resume | setting |\n|---|---:|---:|---:|---:|---:|---:|---|\n")
			for _, r := range of {
				out.WriteString(r.markdown())
			}
			out.WriteString("\n")
		}
	}
	out.WriteString("### What was tried\n\nSamples a second of the short readings that picked a setting.\n\n| data | system | settings |\n|---|---|---|\n")
	for _, r := range b.peers {
		if tried := swept(r); tried != "" {
			tried = strings.ReplaceAll(strings.TrimPrefix(tried, "tried: "), " | ", "<br>")
			fmt.Fprintf(&out, "| %s, %s | %s | %s |\n", r.kind, storeNames[r.Store], r.system, tried)
		}
	}
	return out.String() + "\n"
}

// markdown is a row of a table.
func (r peerResult) markdown() string {
	if r.Reason != "" {
		return fmt.Sprintf("| %s | – | – | – | – | – | – | %s |\n", r.system, table.Cell(r.Reason))
	}
	memory, first, resume := "–", "–", "–"
	if len(r.Memory) > 0 {
		memory = fmt.Sprintf("%.0f MiB", slices.Max(r.Memory))
	}
	if len(r.First) > 0 {
		first = duration(r.First.Median())
	}
	if len(r.Resume) > 0 {
		resume = duration(r.Resume.Median())
	}
	if r.Way != "" {
		resume += ", " + r.Way
	}
	setting := r.Setting
	if r.Note != "" {
		setting += "; " + r.Note
	}
	if !r.Whole {
		setting += "; the readings ended before the epoch"
	}
	return fmt.Sprintf("| %s | %s | %.0f | %s | %s | %s | %s | %s |\n", r.system, table.Count(r.Rates.Median()), r.Bytes.Median()/1e6,
		duration(r.CPU.Median()), memory, first, table.Cell(resume), table.Cell(setting))
}

// goalsMarkdown is the whole table of a run.
func (b *bench) goalsMarkdown() string {
	var out strings.Builder
	out.WriteString(stamp(cpuModel(), b.header))
	// Those of other systems have tables of their own.
	out.WriteString(b.Markdown(func(group string) bool { return group != "peers" }))
	return out.String() + "\n"
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
