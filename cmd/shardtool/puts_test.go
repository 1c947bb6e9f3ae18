package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shardtool/shardtool/objstore/address"
)

// putsVariable is how often each write of each command at each store fails in TestEveryPut; unset,
// some of them at one store fail once.
const putsVariable = "SHARDTOOL_TEST_PUTS"

// putCommands are the commands that write to a store, each after the ones before it. SET is the
// data set's address; what a command writes elsewhere below it is at SET/OTHER.
var putCommands = []struct {
	args  string
	other string // where it makes a data set, if not at SET
	once  bool   // it refuses to do what it has done
}{
	{args: "pack SRC SET --quiet --samples-per-shard 4 --resume"},
	{args: "pack MORE SET --quiet --append --resume"},
	{args: "pack SET SET/again --quiet --samples-per-shard 7 --resume", other: "again"},
	{args: "export SET SET/tars --quiet"},
	{args: "index SET/tars --quiet --overwrite", other: "tars"},
	{args: "pack SRC SET/parts --quiet --parts 2 --part 0", other: "parts"},
	{args: "pack SRC SET/parts --quiet --parts 2 --part 1", other: "parts"},
	{args: "commit SET/parts --parts 2", other: "parts"},
	{args: "layer add SET captions ROWS --quiet --key id --columns caption --unknown skip --resume", other: "layers/captions"},
	{args: "layer add SET captions ROWS --quiet --key id --columns caption --unknown skip --update --resume", other: "layers/captions"},
	{args: "select SET --keys KEYS --name some --overwrite"},
	{args: "remove SET --keys KEYS"},
	{args: "remove SET --keys BACK --restore"},
	{args: "purge SET --quiet"},
	{args: "purge SET --quiet --generations"},
	{args: "layer remove SET captions", other: "layers/captions", once: true},
	{args: "pack MORE SET --quiet --overwrite --resume"},
	{args: "prune SET --grace 0s"},
}

// isWrite reports whether a request puts or deletes an object, or is a step of it. To give up an
// upload is none.
func isWrite(r *http.Request) bool {
	switch r.Method {
	case http.MethodPut, http.MethodPost:
		return true
	case http.MethodDelete:
		return !r.URL.Query().Has("uploadId") && !strings.HasPrefix(r.URL.Path, "/upload")
	}
	return false
}

// TestEveryPut lets writes of every command fail, before and after they take effect. The command
// then ends. It names the object, or has succeeded, and what is published is what was before or
// what it makes. The command makes that when it runs again.
func TestEveryPut(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts hundreds of processes: make test runs it without the race detector")
	}
	rounds := 0
	if text := os.Getenv(putsVariable); text != "" {
		if _, err := fmt.Sscan(text, &rounds); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	var keys, rows strings.Builder
	for i := range 16 {
		folder := "src"
		if i >= 12 {
			folder = "more"
		}
		writeText(t, filepath.Join(dir, folder, fmt.Sprintf("s%02d.txt", i)), strings.Repeat(fmt.Sprint("sample ", i, "\n"), 50))
		fmt.Fprintf(&rows, "{\"id\": \"s%02d\", \"caption\": \"of %d\"}\n", i, i)
		if i%5 == 0 {
			fmt.Fprintf(&keys, "s%02d\n", i)
		}
	}
	writeText(t, filepath.Join(dir, "keys"), keys.String())
	writeText(t, filepath.Join(dir, "back"), "s10\n")
	writeText(t, filepath.Join(dir, "rows.jsonl"), rows.String())
	failed, longest, slowest := 0, time.Duration(0), ""
	for name, r := range remotes(t) {
		if rounds == 0 && name != "s3" {
			continue // what a store makes of an error has tests of its own
		}
		for _, c := range putCommands {
			set := func(below string) string {
				addr, query, _ := strings.Cut(r.addr, "?")
				return addr + below + "?" + query
			}
			args := strings.Fields(c.args)
			for i, arg := range args {
				switch below, isSet := strings.CutPrefix(arg, "SET"); {
				case isSet:
					args[i] = set(below)
				case slices.Contains([]string{"SRC", "MORE", "KEYS", "BACK"}, arg):
					args[i] = filepath.Join(dir, strings.ToLower(arg))
				case arg == "ROWS":
					args[i] = filepath.Join(dir, "rows.jsonl")
				}
			}
			at := remote{addr: r.addr}
			if c.other != "" {
				at.addr = set("/" + c.other)
			}
			state := func() string {
				return at.state(t) + ", " + strings.Join(objectsAt(t, at.addr, strings.HasPrefix(c.args, "pr")), " ")
			}
			before, restore := state(), r.save()
			if _, text, err := r.refuse(t, -1, false, args); err != nil {
				t.Fatalf("%s: %q: %v\n%s", name, args, err, text)
			}
			want, forward := state(), r.save()
			for round := range max(rounds, 1) {
				for _, after := range []bool{false, true} {
					step := 1
					if rounds == 0 {
						step = 16
					}
					number := 0
					for ; ; number += step {
						restore()
						begin := time.Now()
						refused, text, err := r.refuse(t, number, after, args)
						took := time.Since(begin)
						if refused == "" {
							if err != nil {
								t.Fatalf("%s: %q, undisturbed: %v\n%s", name, args, err, text)
							}
							break
						}
						if failed++; took > longest {
							longest, slowest = took, fmt.Sprintf("%s: %q at write %d, %s", name, args, number, refused)
						}
						about := fmt.Sprintf("%s: %q, round %d, write %d (%s) refused, after it took effect: %v: %v\n%s",
							name, args, round, number, refused, after, err, text)
						now := state()
						switch {
						case err == nil && now != want:
							t.Errorf("%s\nsuccess, and there is %s, want %s", about, now, want)
						case err != nil && !namesObject.MatchString(text):
							t.Errorf("%s\nno object is named", about)
						case err != nil && !strings.HasPrefix(c.args, "pr") && now != before && now != want:
							t.Errorf("%s\nthere is %s, want %s or %s", about, now, before, want)
						}
						if err != nil && !(c.once && now == want) {
							if _, text, err := r.refuse(t, -1, false, args); err != nil {
								t.Errorf("%s\nonce more: %v\n%s", about, err, text)
							}
						}
						if now := state(); now != want {
							t.Errorf("%s\nonce more leads to %s, want %s", about, now, want)
						}
					}
					if number == 0 {
						t.Errorf("%s: %q writes nothing", name, args)
					}
				}
			}
			forward()
		}
	}
	t.Logf("%d writes were refused; the longest time to an end was %v (%s)", failed, longest.Round(time.Millisecond), slowest)
}

// namesObject finds the error of a store that names an object.
var namesObject = regexp.MustCompile(`(put|delete) [^ ]+ in [a-z0-9]+://`)

// refuse runs a command and refuses its write of that number. It returns the request that was
// refused, and what the command printed.
func (r *remote) refuse(t *testing.T, number int, after bool, args []string) (refused, text string, err error) {
	t.Helper()
	var n atomic.Int64
	var which atomic.Pointer[string]
	r.server.SetHook(func(w http.ResponseWriter, request *http.Request) bool {
		if !isWrite(request) || n.Add(1)-1 != int64(number) {
			return false
		}
		which.Store(new(request.Method + " " + request.URL.Path))
		if after {
			r.server.Answer(httptest.NewRecorder(), request)
		}
		_, _ = io.Copy(io.Discard, request.Body) // a client that has ended does not need the answer
		w.WriteHeader(http.StatusForbidden)
		return true
	})
	defer r.server.SetHook(nil)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "shardtool", args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	if ctx.Err() != nil {
		t.Fatalf("%q did not end\n%s", args, out.String())
	}
	if p := which.Load(); p != nil {
		refused = *p
	}
	return refused, out.String(), err
}

// objectsAt lists a folder of a store, if all is set.
func objectsAt(t *testing.T, addr string, all bool) (names []string) {
	t.Helper()
	if !all {
		return nil
	}
	store, err := address.Open(t.Context(), addr, address.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for info, err := range store.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, info.Name)
	}
	return names
}
