package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestMain puts this test binary into PATH as shardtool, for scripts and for tests that kill
// processes.
func TestMain(m *testing.M) {
	if os.Getenv("GORACE") == "" { // under the race detector a process sleeps a second before it ends
		os.Setenv("GORACE", "atexit_sleep_ms=0")
	}
	testscript.Main(m, map[string]func(){"shardtool": func() {
		code := run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
		if file := os.Getenv(peakFile); file != "" {
			status, err := os.ReadFile("/proc/self/status")
			if err != nil || os.WriteFile(file, status, 0o644) != nil {
				code = 99
			}
		}
		os.Exit(code)
	}, "readsource": readSource})
}

// peakFile is the variable that makes a process write its memory figures to a file. The figures of
// wait include the memory of the parent before exec.
const peakFile = "SHARDTOOL_TEST_STATUS"

// concurrentScripts are those of testdata/script that the race detector looks at. They have every
// command that starts goroutines, and checkpoints. The goroutines of packages have tests there, and
// those of the sources in the tests that stop a pack.
var concurrentScripts = []string{
	"bench", "cache", "catmix", "corrupt", "export", "metrics", "mixstage", "parts", "pipes", "purge", "remove", "roundtrip", "stdin",
	"stream_checkpoint", "stream_order",
}

// TestScripts runs testdata/script: one shell session per file, with exit codes.
func TestScripts(t *testing.T) {
	const dir = "testdata/script"
	files, err := filepath.Glob(dir + "/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal(len(files), err)
	}
	if testing.Short() {
		files = nil
		for _, name := range concurrentScripts {
			files = append(files, filepath.Join(dir, name+".txtar"))
		}
	}
	demo, err := filepath.Abs("../../testdata/demo")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Files: files,
		Setup: func(env *testscript.Env) error {
			env.Setenv("DEMO", demo)
			env.Setenv("LC_ALL", "C.UTF-8")
			env.Setenv("GORACE", os.Getenv("GORACE"))
			env.Setenv("TMPDIR", env.WorkDir+"/.tmp")
			return os.MkdirAll(env.WorkDir+"/.tmp", 0o755)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"code": cmdCode, "json": cmdJSON, "members": cmdMembers, "numbering": cmdNumbering, "flip": cmdFlip, "random": cmdRandom,
			"mixcheckpoint": cmdMixCheckpoint,
		},
	})
}

// runCode runs a command and returns its exit code.
func runCode(t *testing.T, cmd *exec.Cmd) int {
	t.Helper()
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode()
}
