package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestTarChangesWhileRead overwrites or truncates plain tars, packed and indexed ones, while they
// are streamed: every delivered member is right, and the stream ends with an error that names shard
// and block.
func TestTarChangesWhileRead(t *testing.T) {
	t.Parallel()
	const samples, size = 300, 100_000
	payload := func(name string) []byte { return bytes.Repeat([]byte(name), size/len(name)) }
	for kind, prepare := range map[string]func(t *testing.T, dir string){
		"packed": func(t *testing.T, dir string) {
			src := filepath.Join(t.TempDir(), "all.tar")
			writeTar(t, src, samples, payload)
			does(t, "pack", src, dir, "--format", "tar")
		},
		"indexed": func(t *testing.T, dir string) {
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			writeTar(t, filepath.Join(dir, "x.tar"), samples, payload)
			does(t, "index", dir)
		},
	} {
		for change, f := range map[string]func(name string, size int64) error{
			"cut": func(name string, size int64) error { return os.Truncate(name, 4096) },
			"overwritten": func(name string, size int64) error {
				file, err := os.OpenFile(name, os.O_WRONLY, 0)
				if err != nil {
					return err
				}
				_, err = file.Write(bytes.Repeat([]byte{'x'}, int(size)))
				return errors.Join(err, file.Close())
			},
		} {
			if testing.Short() && kind != "packed" {
				continue // the same goroutines
			}
			for _, order := range [][]string{nil, {"--shuffle", "--epochs", "1", "--memory", "2MiB"}} {
				t.Run(kind+"/"+change+"/"+strings.Join(order, ""), func(t *testing.T) {
					dir := filepath.Join(t.TempDir(), "set")
					prepare(t, dir)
					tars, err := filepath.Glob(filepath.Join(dir, "*.tar"))
					if err != nil || len(tars) == 0 {
						t.Fatal(tars, err)
					}
					cmd := exec.Command("shardtool", append([]string{"cat", dir, "--workers", "1"}, order...)...)
					var words bytes.Buffer
					cmd.Stderr = &words
					pipe, err := cmd.StdoutPipe()
					if err != nil {
						t.Fatal(err)
					}
					if err := cmd.Start(); err != nil {
						t.Fatal(err)
					}
					members := 0
					for in := tar.NewReader(pipe); ; members++ {
						h, err := in.Next()
						if err != nil {
							break
						}
						got, err := io.ReadAll(in)
						if err != nil {
							break
						}
						if want := payload(h.Name); !bytes.Equal(got, want) {
							t.Fatalf("%s is wrong", h.Name)
						}
						if members == 0 {
							for _, name := range tars {
								info, err := os.Stat(name)
								if err == nil {
									err = f(name, info.Size())
								}
								if err != nil {
									t.Fatal(err)
								}
							}
						}
					}
					_, _ = io.Copy(io.Discard, pipe)
					_ = cmd.Wait()
					if code := cmd.ProcessState.ExitCode(); code <= 0 || code == 2 || members == samples {
						t.Errorf("exit %d after %d members: %s", code, members, words.String())
					}
					if s := words.String(); !strings.Contains(s, filepath.Base(tars[0])) || !strings.Contains(s, "block") || strings.Contains(s, "goroutine") {
						t.Errorf("%s", s)
					}
				})
			}
		}
	}
}

func does(t *testing.T, args ...string) {
	t.Helper()
	if text, err := exec.Command("shardtool", args...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
}

func writeTar(t *testing.T, name string, samples int, payload func(string) []byte) {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := range samples {
		member := string([]byte{'k', byte('0' + i/100), byte('0' + i/10%10), byte('0' + i%10)}) + ".bin"
		data := payload(member)
		if err := w.WriteHeader(&tar.Header{Name: member, Mode: 0o644, Size: int64(len(data)), Format: tar.FormatUSTAR}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), os.WriteFile(name, b.Bytes(), 0o644)); err != nil {
		t.Fatal(err)
	}
}
