package main

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"net/http/cookiejar"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestView looks at a mix as a browser does, at a step of a checkpoint too, and stops the server.
func TestView(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	shell := func(line string) {
		t.Helper()
		cmd := exec.Command("sh", "-ec", line)
		cmd.Dir = dir
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", line, err, text)
		}
	}
	demo, err := filepath.Abs("../../testdata/demo")
	if err != nil {
		t.Fatal(err)
	}
	mix := "sources:\n  a: {data: a, weight: 3}\n  b: {data: b, weight: 1}\n"
	if err := os.WriteFile(filepath.Join(dir, "mix.yaml"), []byte(mix), 0o600); err != nil {
		t.Fatal(err)
	}
	shell("shardtool pack '" + demo + "/animals' a; shardtool pack '" + demo + "/food' b")
	shell("shardtool cat mix.yaml --shuffle --seed 5 --global-batch 8 --limit 32 --checkpoint-out ck.json >cat.tar")
	shell("shardtool explain ck.json mix.yaml --json >step.json")

	cmd := exec.Command("shardtool", "view", "mix.yaml", "--no-open", "--checkpoint", "ck.json")
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }()
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	address := strings.TrimSpace(line)
	if !strings.HasPrefix(address, "http://127.0.0.1:") {
		t.Fatalf("it printed %q", line)
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Jar: jar}
	get := func(address string) string {
		t.Helper()
		r, err := client.Get(address)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		text, err := io.ReadAll(r.Body)
		if err != nil || r.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s, %v: %s", address, r.Status, err, text)
		}
		return string(text)
	}
	base, _, _ := strings.Cut(address, "?")
	if page := get(address); !strings.Contains(page, `<option selected>a</option>`) {
		t.Errorf("the first page: %s", page)
	}
	if page := get(base + "samples?source=b"); !strings.Contains(page, "/field?") {
		t.Errorf("the samples of b: %s", page)
	}
	text, err := os.ReadFile(filepath.Join(dir, "step.json"))
	if err != nil {
		t.Fatal(err)
	}
	page := get(base + "step")
	keys := 0
	for _, field := range strings.Split(string(text), `"key": "`)[1:] {
		key, _, _ := strings.Cut(field, `"`)
		keys++
		if !strings.Contains(page, ">"+key+"</a>") {
			t.Errorf("the step has no %q", key)
		}
	}
	if keys != 8 || !strings.Contains(page, "Step 4,") {
		t.Errorf("%d keys are explained; the page: %s", keys, page)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("after an interrupt: %v: %s", err, stderr.String())
	}
}

// TestViewRefuses: what cannot be served is an error before the address is printed.
func TestViewRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		code int
		text string
	}{
		{[]string{"nothing"}, exitNotFound, "nothing"},
		{[]string{"../../testdata/demo", "--tokenizer", "none.json"}, exitUsage, "none.json"},
		{[]string{"../../testdata/demo", "--listen", "8080"}, exitNotFound, "demo"},
	} {
		var out, errs bytes.Buffer
		args := append([]string{"view", "--no-open"}, c.args...)
		if code := run(args, strings.NewReader(""), &out, &errs); code != c.code || !strings.Contains(errs.String(), c.text) || out.Len() > 0 {
			t.Errorf("%q: exit %d, %s%s", args, code, out.String(), errs.String())
		}
	}
}

// TestViewOpens: the token is in no argument of the program that opens the browser. It is given a
// file for this user alone, which leads to the pages and is removed at the end.
func TestViewOpens(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	programs, temp, seen := filepath.Join(dir, "bin"), filepath.Join(dir, "tmp"), filepath.Join(dir, "seen")
	open := "#!/bin/sh\n{ echo \"$@\"; stat -c %a \"$1\"; cat \"$1\"; } >" + seen + ".part; mv " + seen + ".part " + seen + "\n"
	for _, folder := range []string{programs, temp} {
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"xdg-open", "open"} {
		if err := os.WriteFile(filepath.Join(programs, name), []byte(open), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("shardtool", "view", smallSet(t))
	cmd.Env = append(os.Environ(), "PATH="+programs+":"+os.Getenv("PATH"), "TMPDIR="+temp)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }()
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	address := strings.TrimSpace(line)
	_, token, _ := strings.Cut(address, "token=")
	var text []byte
	for begun := time.Now(); text == nil; time.Sleep(10 * time.Millisecond) {
		if text, err = os.ReadFile(seen); err != nil && time.Since(begun) > time.Minute {
			t.Fatal(err)
		}
	}
	arguments, rest, _ := strings.Cut(string(text), "\n")
	mode, page, _ := strings.Cut(rest, "\n")
	if token == "" || strings.Contains(arguments, token) || mode != "600" || !strings.Contains(page, "url="+address) {
		t.Errorf("arguments %q, mode %s, page %q", arguments, mode, page)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // with the code of a signal
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Error("left", left, err)
	}
}
