// Command licenses writes the licences of every module linked into the binary to
// cmd/shardtool/licenses.txt, which the binary embeds. Modules with the same text share one copy.
//
//	go run .ci/licenses.go          write the file
//	go run .ci/licenses.go -check   exit 1 when the file is out of date
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const file = "cmd/shardtool/licenses.txt"

// platforms are those that releases are built for: the modules linked differ between them.
var platforms = []string{"linux", "darwin"}

func main() {
	check := flag.Bool("check", false, "compare instead of writing")
	flag.Parse()
	text, err := collect()
	if err == nil && *check {
		var have []byte
		if have, err = os.ReadFile(file); err == nil && !bytes.Equal(have, text) {
			err = fmt.Errorf("%s is out of date: run make licenses", file)
		}
	} else if err == nil {
		err = os.WriteFile(file, text, 0o666)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "licenses:", err)
		os.Exit(1)
	}
}

func collect() ([]byte, error) {
	folders := map[string]string{} // by module and version
	for _, goos := range platforms {
		list := exec.Command("go", "list", "-deps", "-f",
			"{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}}\t{{.Dir}}{{end}}{{end}}", "./cmd/shardtool")
		list.Env = append(os.Environ(), "GOOS="+goos, "CGO_ENABLED=0")
		list.Stderr = os.Stderr
		out, err := list.Output()
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(out)) {
			if name, folder, ok := strings.Cut(strings.TrimSpace(line), "\t"); ok {
				folders[name] = folder
			}
		}
	}
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, err
	}
	folders["The Go runtime and standard library"] = strings.TrimSpace(string(root))
	users := map[string][]string{} // of each text
	for name, folder := range folders {
		texts, err := licenses(folder)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		for _, text := range texts {
			users[text] = append(users[text], name)
		}
	}
	var sections []string
	for text, names := range users {
		slices.Sort(names)
		sections = append(sections, strings.Join(names, "\n")+"\n\n"+text)
	}
	slices.Sort(sections)
	const rule = "\n----------------------------------------------------------------------\n\n"
	head := "shardtool is licensed under the Apache License 2.0 and contains the software named below.\n"
	return []byte(head + rule + strings.Join(sections, rule)), nil
}

// licenses returns the texts of the licence files of a module; some modules have theirs in README.
func licenses(folder string) (texts []string, err error) {
	for _, prefixes := range [][]string{{"LICENSE", "LICENCE", "NOTICE", "COPYING"}, {"README"}} {
		entries, err := os.ReadDir(folder)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			upper := strings.ToUpper(e.Name())
			if e.IsDir() || !slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(upper, p) }) {
				continue
			}
			text, err := os.ReadFile(filepath.Join(folder, e.Name()))
			if err != nil {
				return nil, err
			}
			texts = append(texts, strings.TrimSpace(strings.ReplaceAll(string(text), "\r\n", "\n"))+"\n")
		}
		if len(texts) > 0 {
			return texts, nil
		}
	}
	return nil, fmt.Errorf("no licence in %s", folder)
}
