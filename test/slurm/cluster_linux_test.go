// Package slurm runs deploy/slurm on a Slurm cluster: a controller and four nodes on the loopback
// interface, as the user who runs the test.
package slurm

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

const nodes = 4

// cluster is a running Slurm.
type cluster struct {
	dir string
	env []string
}

// config is slurm.conf. Credentials expire soon, because a requeued job waits for that.
const config = `ClusterName=test
SlurmctldHost=%[1]s(127.0.0.1)
SlurmctldPort=%[3]d
SlurmUser=%[4]s
SlurmdUser=%[4]s
AuthType=auth/munge
AuthInfo=socket=%[2]s/munge.socket,cred_expire=5
CredType=cred/munge
StateSaveLocation=%[2]s/state
SlurmdSpoolDir=%[2]s/spool.%%n
SlurmctldPidFile=%[2]s/slurmctld.pid
SlurmdPidFile=%[2]s/slurmd.%%n.pid
SlurmctldLogFile=%[2]s/slurmctld.log
SlurmdLogFile=%[2]s/slurmd.%%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=1,bf_interval=1,sched_min_interval=100000
SlurmdParameters=config_overrides
ReturnToService=2
MpiDefault=none
KillWait=3
NodeName=node[1-%[5]d] NodeHostname=%[1]s NodeAddr=127.0.0.1 Port=[%[6]d-%[7]d] CPUs=2 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
`

// start runs the daemons until the test ends, and waits until all nodes are idle.
func start(ctx context.Context, t *testing.T) *cluster {
	t.Helper()
	t.Setenv("PATH", os.Getenv("PATH")+":/usr/sbin:/sbin") // where daemons are, and not in everybody's path
	for _, tool := range []string{"munged", "slurmctld", "slurmd", "sbatch", "srun"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Fatalf("%v: this test needs Slurm and munge; on Debian: apt-get install slurm-wlm munge", err)
		}
	}
	// Paths of sockets must be short, and munge checks the permissions of all directories above.
	dir, err := os.MkdirTemp("/tmp", "slurm-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	c := &cluster{dir: dir, env: append(os.Environ(), "SLURM_CONF="+dir+"/slurm.conf")}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	host, _, _ = strings.Cut(host, ".")
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	first := freePorts(t, nodes+1)
	text := fmt.Sprintf(config, host, dir, first, me.Username, nodes, first+1, first+nodes)
	key := make([]byte, 128)
	_, _ = rand.Read(key)
	err = errors.Join(os.Chmod(dir, 0o755), os.Mkdir(dir+"/state", 0o755), os.WriteFile(dir+"/slurm.conf", []byte(text), 0o644),
		os.WriteFile(dir+"/munge.key", key, 0o600))
	for i := range nodes {
		err = errors.Join(err, os.Mkdir(fmt.Sprintf("%s/spool.node%d", dir, i+1), 0o755))
	}
	if err != nil {
		t.Fatal(err)
	}
	c.daemon(t, "munged", "--foreground", "--force", "--num-threads=2", "--key-file="+dir+"/munge.key", "--socket="+dir+"/munge.socket",
		"--pid-file="+dir+"/munged.pid", "--log-file="+dir+"/munged.log", "--seed-file="+dir+"/munged.seed")
	for i := range nodes {
		c.daemon(t, "slurmd", "-D", "-N", fmt.Sprintf("node%d", i+1))
	}
	c.daemon(t, "slurmctld", "-D", "-i")
	t.Cleanup(func() { // before the daemons end
		if t.Failed() {
			c.logs(t)
		}
		_, _ = c.try(context.Background(), "scancel", "--user="+me.Username)
		c.drain(t)
	})
	c.until(ctx, t, "idle nodes", func() (string, bool) {
		out, err := c.try(ctx, "sinfo", "-h", "-o", "%T %D")
		return out, err == nil && strings.TrimSpace(out) == fmt.Sprint("idle ", nodes)
	})
	return c
}

// freePorts returns the first of n consecutive ports on which nobody listens.
func freePorts(t *testing.T, n int) int {
	t.Helper()
search:
	for range 100 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		port := l.Addr().(*net.TCPAddr).Port
		l.Close()
		for i := range n {
			l, err := net.Listen("tcp", fmt.Sprintf(":%d", port+i))
			if err != nil {
				continue search
			}
			l.Close()
		}
		return port
	}
	t.Fatal("no free ports")
	return 0
}

// daemon runs a program until the test ends. The program also ends if this process dies: the kernel
// watches the thread that started it.
func (c *cluster) daemon(t *testing.T, name string, args ...string) {
	t.Helper()
	log, err := os.CreateTemp(c.dir, name+"-*.out")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(name, args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = c.env, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started, ended := make(chan error), make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // it is we who end it
		}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		defer log.Close()
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			_ = cmd.Process.Kill()
			<-ended
		}
	})
}

// try runs a program with the cluster's environment.
func (c *cluster) try(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env, cmd.Dir = c.env, c.dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s %q: %w: %s", name, args, err, &stderr)
	}
	return strings.TrimSpace(string(out)), err
}

func (c *cluster) run(ctx context.Context, t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := c.try(ctx, name, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// until repeats a check until it succeeds or ctx ends.
func (c *cluster) until(ctx context.Context, t *testing.T, what string, done func() (last string, ok bool)) {
	t.Helper()
	for {
		last, ok := done()
		if ok {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("waiting for %s: %v; the last answer: %q", what, ctx.Err(), last)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// gone waits until jobs have left the queue.
func (c *cluster) gone(ctx context.Context, t *testing.T, jobs ...string) {
	t.Helper()
	c.until(ctx, t, "jobs to end", func() (string, bool) {
		out, err := c.try(ctx, "squeue", "-h", "-r", "-j", strings.Join(jobs, ","), "-o", "%i %T %r")
		return out, err == nil && out == ""
	})
}

// drain waits a while for the last steps of jobs to end, so that none of their processes remain.
func (c *cluster) drain(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if out, err := c.try(context.Background(), "squeue", "-h"); err != nil || out == "" {
			return
		}
	}
}

func (c *cluster) logs(t *testing.T) {
	t.Helper()
	files, _ := filepath.Glob(c.dir + "/*.log")
	outs, _ := filepath.Glob(c.dir + "/*.out")
	for _, file := range append(files, outs...) {
		text, err := os.ReadFile(file)
		if err != nil || len(text) == 0 {
			continue
		}
		t.Logf("%s:\n%s", file, text[max(0, len(text)-3000):])
	}
}
