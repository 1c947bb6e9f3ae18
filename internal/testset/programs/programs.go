// Package programs is for tests that run other programs.
package programs

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"testing"
	"time"
)

// Need skips a test where one of the programs is not installed. Where SHARDTOOL_TEST_TOOLS is set,
// as where all of them are to be installed, that is a failure.
func Need(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := exec.LookPath(name); err == nil {
			continue
		}
		if os.Getenv("SHARDTOOL_TEST_TOOLS") != "" {
			t.Fatalf("%s is not installed, and SHARDTOOL_TEST_TOOLS wants all programs", name)
		}
		t.Skipf("%s is not installed", name)
	}
}

// Python runs a program of the standard library's Python, 3.9 or later, and returns what it writes
// to stdout. It skips the test as Need does, and ends it when the program fails.
func Python(t testing.TB, stdin []byte, program string, arguments ...string) string {
	t.Helper()
	Need(t, "python3")
	c := exec.CommandContext(t.Context(), "python3", append([]string{"-I", program}, arguments...)...)
	c.WaitDelay = time.Minute // from its end on, too: a busy machine may be late to read its output
	var stdout, stderr bytes.Buffer
	c.Stdin, c.Stdout, c.Stderr = bytes.NewReader(stdin), &stdout, &stderr
	if err := c.Run(); err != nil {
		t.Fatalf("python3 %s: %v\n%s%s", program, err, stdout.Bytes(), stderr.Bytes())
	}
	return stdout.String()
}

// Answers has a second implementation in Python answer cases, all in one process: a JSON object for
// each case on stdin, one for each answer on stdout.
func Answers[A, C any](t testing.TB, program string, cases []C) []A {
	t.Helper()
	var in bytes.Buffer
	for i := range cases {
		if err := json.NewEncoder(&in).Encode(&cases[i]); err != nil {
			t.Fatal(err)
		}
	}
	d := json.NewDecoder(bytes.NewReader([]byte(Python(t, in.Bytes(), program, "--compare"))))
	answers := make([]A, len(cases))
	for i := range answers {
		if err := d.Decode(&answers[i]); err != nil {
			t.Fatalf("answer %d: %v", i, err)
		}
	}
	return answers
}
