// Command notes prints what CHANGELOG.md has of the version in the file VERSION, for the page of a
// release.
//
// -release DATE turns the section Unreleased into the section of the version, with an empty one
// above it: the last change before the tag. -check wants a section Unreleased, then versions with
// dates, the newest first and none newer than the file VERSION.
package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

func main() {
	check := flag.Bool("check", false, "check the shape of CHANGELOG.md")
	release := flag.String("release", "", "turn Unreleased into the version of this date, as 2026-01-31")
	flag.Parse()
	text, err := os.ReadFile("CHANGELOG.md")
	version, err2 := os.ReadFile("VERSION")
	if err = cmp.Or(err, err2); err == nil {
		err = run(string(text), strings.TrimSpace(string(version)), *check, *release)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "notes:", err)
		os.Exit(1)
	}
}

func run(text, version string, check bool, date string) error {
	sections, err := parse(text)
	switch {
	case err != nil || check:
		if err == nil && slices.ContainsFunc(sections[1:], func(s section) bool { return newer(s.version, version) }) {
			err = fmt.Errorf("CHANGELOG.md has a version newer than %s, which the file VERSION names", version)
		}
		return err
	case date != "":
		if text, err = cut(text, version, date, sections); err != nil {
			return err
		}
		return os.WriteFile("CHANGELOG.md", []byte(text), 0o644)
	}
	for _, s := range sections[1:] {
		if s.version == version {
			fmt.Println(strings.TrimSpace(s.body))
			return nil
		}
	}
	return fmt.Errorf("CHANGELOG.md has no section for %s: run `go run .ci/notes.go -release DATE`, and commit, before the tag", version)
}

// section is what the file has of a version; it is "" for Unreleased.
type section struct{ version, body string }

const unreleased = "## [Unreleased]\n"

var heading = regexp.MustCompile(`(?m)^## .*$`)
var versioned = regexp.MustCompile(`^## \[(\d+\.\d+\.\d+)\] - (\d{4}-\d{2}-\d{2})$`)

func parse(text string) ([]section, error) {
	at := heading.FindAllStringIndex(text, -1)
	if len(at) == 0 || !strings.HasPrefix(text[at[0][0]:], unreleased) {
		return nil, errors.New("the first section of CHANGELOG.md must be [Unreleased]")
	}
	var out []section
	for i, where := range at {
		end := len(text)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		s := section{body: text[where[1]:end]}
		if i > 0 {
			title := versioned.FindStringSubmatch(text[where[0]:where[1]])
			if title == nil {
				return nil, fmt.Errorf("CHANGELOG.md: %q: want a title such as ## [1.2.3] - 2026-01-31",
					text[where[0]:where[1]])
			}
			if _, err := time.Parse(time.DateOnly, title[2]); err != nil {
				return nil, fmt.Errorf("CHANGELOG.md: version %s: %w", title[1], err)
			}
			if s.version = title[1]; i > 1 && !newer(out[i-1].version, s.version) {
				return nil, fmt.Errorf("CHANGELOG.md: %s comes after %s: the newest version comes first", s.version,
					out[i-1].version)
			}
		}
		out = append(out, s)
	}
	return out, nil
}

func cut(text, version, date string, sections []section) (string, error) {
	if !versioned.MatchString(fmt.Sprintf("## [%s] - %s", version, date)) {
		return "", fmt.Errorf("version %q, date %q: want 1.2.3 in the file VERSION, and a date such as 2026-01-31",
			version, date)
	}
	if strings.TrimSpace(sections[0].body) == "" {
		return "", errors.New("the section [Unreleased] is empty: there is nothing to release")
	}
	if len(sections) > 1 && !newer(version, sections[1].version) {
		return "", fmt.Errorf("%s is in CHANGELOG.md already: raise the file VERSION", sections[1].version)
	}
	out := strings.Replace(text, unreleased, fmt.Sprintf("%s\n## [%s] - %s\n", unreleased, version, date), 1)
	_, err := parse(out)
	return out, err
}

// newer reports whether version a is newer than b.
func newer(a, b string) bool {
	numbers := func(v string) []int {
		var out []int
		for part := range strings.SplitSeq(v, ".") {
			n, _ := strconv.Atoi(part) // they are digits
			out = append(out, n)
		}
		return out
	}
	return slices.Compare(numbers(a), numbers(b)) > 0
}
