package main

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// cmdCode runs a program and checks its exit code: code N PROGRAM ARG…
func cmdCode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N program [args...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	var exit *exec.ExitError
	got := 0
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v: %v", args[1:], err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// lookUp follows a path such as faults.0.kind.
func lookUp(v any, path string) (any, bool) {
	for _, name := range strings.Split(path, ".") {
		switch in := v.(type) {
		case map[string]any:
			next, ok := in[name]
			if !ok {
				return nil, false
			}
			v = next
		case []any:
			if name == "len" {
				v = float64(len(in))
				continue
			}
			i, err := strconv.Atoi(name)
			if err != nil || i >= len(in) {
				return nil, false
			}
			v = in[i]
		default:
			return nil, false
		}
	}
	return v, true
}

func readJSON(ts *testscript.TestScript, file string) any {
	var v any
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(file)), &v))
	return v
}

// cmdJSON compares one value: json FILE PATH WANT, where WANT is what fmt prints for it.
func cmdJSON(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 3 {
		ts.Fatalf("usage: [!] json file path want")
	}
	v, ok := lookUp(readJSON(ts, args[0]), args[1])
	if !ok {
		ts.Fatalf("%s: no member %s", args[0], args[1])
	}
	got := fmt.Sprint(v)
	if f, is := v.(float64); is {
		got = strconv.FormatFloat(f, 'f', -1, 64)
	}
	if (got == args[2]) == neg {
		ts.Fatalf("%s: %s is %s, want %s (negated: %v)", args[0], args[1], got, args[2], neg)
	}
}

// cmdMembers checks that the first JSON value of a file has these members: members FILE PATH…
func cmdMembers(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: members file path...")
	}
	var v any
	ts.Check(json.NewDecoder(strings.NewReader(ts.ReadFile(args[0]))).Decode(&v))
	for _, path := range args[1:] {
		if _, ok := lookUp(v, path); !ok {
			ts.Fatalf("%s: no member %s", args[0], path)
		}
	}
}

// cmdNumbering checks that two non-empty lists of JSON lines agree on the places of samples:
// numbering A B
func cmdNumbering(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: numbering a b")
	}
	read := func(file string) (out []string) {
		for line := range strings.Lines(ts.ReadFile(file)) {
			var at struct {
				Number, Block *int
				Shard, Key    *string
			}
			ts.Check(json.Unmarshal([]byte(line), &at))
			if at.Number == nil || at.Block == nil || at.Shard == nil || at.Key == nil {
				ts.Fatalf("%s: a member is missing: %s", file, line)
			}
			if *at.Number != len(out) {
				ts.Fatalf("%s: number %d in line %d", file, *at.Number, len(out))
			}
			out = append(out, fmt.Sprintf("%d %s %d %q", *at.Number, *at.Shard, *at.Block, *at.Key))
		}
		return out
	}
	a, b := read(args[0]), read(args[1])
	if len(a) == 0 || !slices.Equal(a, b) {
		ts.Fatalf("%d and %d lines, which differ or are none", len(a), len(b))
	}
}

// cmdFlip inverts the bits of one byte: flip FILE OFFSET
func cmdFlip(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: flip file offset")
	}
	name := ts.MkAbs(args[0])
	at, err := strconv.Atoi(args[1])
	ts.Check(err)
	data, err := os.ReadFile(name)
	ts.Check(err)
	if at >= len(data) {
		ts.Fatalf("%s has %d bytes", args[0], len(data))
	}
	data[at] ^= 0xff
	ts.Check(os.WriteFile(name, data, 0o644))
}

// cmdRandom writes files that do not compress: random DIR FILES BYTES
func cmdRandom(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: random dir files bytes")
	}
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	size, err := strconv.Atoi(args[2])
	ts.Check(err)
	ts.Check(randomFiles(ts.MkAbs(args[0]), n, size))
}

// randomFiles writes dir/000000.bin and so on, the same bytes in every run.
func randomFiles(dir string, n, size int) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var seed [32]byte
	buf := make([]byte, size)
	for i := range n {
		binary.LittleEndian.PutUint64(seed[:], uint64(i))
		src := rand.NewChaCha8(seed)
		if _, err := src.Read(buf); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%06d.bin", i)), buf, 0o644); err != nil {
			return err
		}
	}
	return nil
}
