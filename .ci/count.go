// Command count reads what `go test -json` writes, prints what a person wants of
// it, and ends with one line that counts: N passed, N failed, N skipped.
//
// Skipped tests are listed by their reasons above that line, and nowhere else: what this
// machine left out. Tests and subtests count one each. A package that fails without a failed test,
// because it does not build or because it panics, counts as one failure. The exit
// status is 1 where anything failed or nothing ran.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

// event is one line of `go test -json` (go doc test2json).
type event struct {
	Action      string
	Package     string
	ImportPath  string // in place of Package, of build output
	Test        string
	Elapsed     float64
	Output      string
	FailedBuild string
}

// counts are the tests by how they ended.
type counts struct {
	passed, failed, skipped int
	reasons                 map[string]int // of skipped tests
}

func main() {
	n, err := count(os.Stdin, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "count:", err)
	}
	if n.skipped > 0 {
		fmt.Println("left out:")
		for _, reason := range slices.Sorted(maps.Keys(n.reasons)) {
			fmt.Printf("  %d: %s\n", n.reasons[reason], reason)
		}
	}
	if n.passed+n.failed+n.skipped == 0 {
		fmt.Println("no test ran")
	}
	fmt.Printf("%d passed, %d failed, %d skipped\n", n.passed, n.failed, n.skipped)
	if err != nil || n.failed > 0 || n.passed == 0 {
		os.Exit(1)
	}
}

func count(r io.Reader, w io.Writer) (n counts, err error) {
	n.reasons = make(map[string]int)
	output := make(map[string][]string) // of tests that have not ended, by package and test
	failedIn := make(map[string]int)
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		if err == io.EOF && line == "" {
			return n, nil
		}
		if err != nil && err != io.EOF {
			return n, err
		}
		var e event
		if json.Unmarshal([]byte(line), &e) != nil {
			fmt.Fprint(w, line) // go itself spoke, not a test
			continue
		}
		id := e.Package + " " + e.Test
		switch e.Action {
		case "build-output":
			fmt.Fprint(w, e.Output)
		case "output":
			output[id] = append(output[id], e.Output)
		case "pass", "fail", "skip":
			if e.Test != "" {
				n.add(e.Action)
				if e.Action == "fail" {
					failedIn[e.Package]++
				}
			} else {
				endPackage(w, &n, e, failedIn[e.Package] > 0, output)
			}
			if e.Test != "" && e.Action == "fail" {
				show(w, e, output[id])
			}
			if e.Test != "" && e.Action == "skip" {
				n.reasons[reason(output[id])]++
			}
			delete(output, id)
		}
	}
}

func (n *counts) add(action string) {
	switch action {
	case "pass":
		n.passed++
	case "fail":
		n.failed++
	case "skip":
		n.skipped++
	}
}

// endPackage prints a package's line. Where the package failed without a failed test, it prints
// what the package said, and what each test said that had not ended: a panic and os.Exit end the
// process in a test's middle.
func endPackage(w io.Writer, n *counts, e event, testFailed bool, output map[string][]string) {
	switch {
	case e.Action == "skip": // no test files
	case e.Action == "pass":
		fmt.Fprintf(w, "ok    %s  %.1fs\n", e.Package, e.Elapsed)
	default:
		if !testFailed {
			n.failed++
			for _, id := range slices.Sorted(maps.Keys(output)) {
				if strings.HasPrefix(id, e.Package+" ") {
					fmt.Fprint(w, strings.Join(output[id], ""))
				}
			}
		}
		fmt.Fprintf(w, "FAIL  %s  %.1fs\n", e.Package, e.Elapsed)
	}
}

// where matches the file and line that go test prints before a message.
var where = regexp.MustCompile(`^\s*[\w-]+\.go:\d+: `)

// reason is the last message of a skipped test.
func reason(output []string) string {
	said := "no reason given"
	for _, line := range output {
		text := strings.TrimSpace(where.ReplaceAllString(line, ""))
		if _, why, ok := strings.Cut(text, "] skip "); ok && strings.HasPrefix(text, "> [") { // a line of a script
			text = strings.Trim(why, "'")
		}
		if text != "" && !strings.HasPrefix(text, "=== ") && !strings.HasPrefix(text, "--- ") {
			said = text
		}
	}
	return said
}

// show prints what a failed test said.
func show(w io.Writer, e event, output []string) {
	fmt.Fprintf(w, "FAIL  %s %s\n", e.Package, e.Test)
	for _, line := range output {
		if !strings.HasPrefix(line, "=== ") {
			fmt.Fprint(w, line)
		}
	}
}
