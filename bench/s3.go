package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/shardtool/shardtool/bench/table"
)

// s3Module is the folder of the S3 server and its benchmarks. It is a separate module, so that this
// one does not need the server's many dependencies.
const s3Module = "test"

// buildS3 builds a command of the other module, and as the second command its S3 server.
func (b *bench) buildS3(pkg string, commands int) (string, error) {
	bin := filepath.Join(b.dir, "s3-"+filepath.Base(pkg))
	for _, args := range [][]string{{"build", "-o", bin, pkg}, {"tool", "-n", "versitygw"}}[:commands] {
		cmd := exec.CommandContext(b.ctx, "go", args...)
		cmd.Dir, cmd.Env = s3Module, append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			lines := strings.Split(strings.TrimSpace(string(out)), "\n")
			return "", fmt.Errorf("go %s in %s: %w %s", args[0], s3Module, err, lines[len(lines)-1])
		}
	}
	return bin, nil
}

// s3, stores and layers add what make bench-s3 measures: the rows of the other module's own bench.
func (b *bench) s3() error {
	return b.ofModule("s3 ", 2, "throttled,faults,loopback,stream,cache,memory,paced,write")
}

func (b *bench) stores() error { return b.ofModule("", 1, "stores") }

func (b *bench) layers() error {
	interpreter, err := b.python("numpy", "pyarrow")
	if err != nil {
		return err
	}
	return b.ofModule("", 1, "layers", "-python", interpreter)
}

func (b *bench) ofModule(prefix string, commands int, groups string, more ...string) error {
	bin, err := b.buildS3("./bench", commands)
	if err != nil {
		if b.ctx.Err() != nil {
			return err
		}
		b.LeftOut(cmp.Or(strings.TrimSpace(prefix), groups), err.Error())
		return nil
	}
	// Three times a corpus: a second and more over this network, whose rate is the same all the time.
	args := append(more, "-json", "-run", groups, "-mib", fmt.Sprint(3*b.mib), "-times", fmt.Sprint((b.times+1)/2),
		"-long", b.long.String(), "-dir", b.dir)
	cmd := exec.CommandContext(b.ctx, bin, args...)
	cmd.Dir, cmd.Stderr = s3Module, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	out, failed := cmd.Output()
	var rows []table.Row
	if err := json.Unmarshal(out, &rows); err != nil {
		return errors.Join(failed, err)
	}
	for _, r := range rows {
		r.Group = prefix + r.Group
		b.Rows = append(b.Rows, r)
	}
	return failed
}

// s3Server is a running server behind a slow network.
type s3Server struct {
	cmd   *exec.Cmd
	stdin io.Closer
	env   []string
}

// startS3 starts a server, with flags of test/cmd/s3demo. It ends with stop, or with this process.
func (b *bench) startS3(flags ...string) (*s3Server, error) {
	bin, err := b.buildS3("./cmd/s3demo", 2)
	if err != nil {
		return nil, err
	}
	s := &s3Server{cmd: exec.CommandContext(b.ctx, bin, flags...)}
	s.cmd.Dir, s.cmd.Stderr = s3Module, os.Stderr
	s.cmd.Cancel = func() error { return s.cmd.Process.Signal(os.Interrupt) }
	s.cmd.WaitDelay = 10 * time.Second
	if s.stdin, err = s.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		line, ok := strings.CutPrefix(lines.Text(), "export ")
		if !ok {
			break
		}
		s.env = append(s.env, line)
		if strings.HasPrefix(line, "AWS_ENDPOINT_URL=") && s.value("DIRECT_ENDPOINT_URL") != "" {
			return s, nil
		}
	}
	s.stop()
	return nil, errors.New("the S3 server did not start")
}

// value is a variable of the server's environment, the last of that name.
func (s *s3Server) value(name string) (value string) {
	for _, line := range s.env {
		if v, ok := strings.CutPrefix(line, name+"="); ok {
			value = v
		}
	}
	return value
}

func (s *s3Server) stop() {
	_ = s.stdin.Close()
	_ = s.cmd.Wait()
}
