package local

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/shardtool/shardtool/objstore"
)

// children are the bodies of helper processes, which run the test binary again with further
// arguments.
var children = map[string]func(ctx context.Context, args []string) error{
	"new":   childNew,
	"count": childCount,
	"put":   childPut,
	"lock":  childLock,
	"hold":  childHold,
}

const rounds = 60

// child is a running helper process. It prints "ready" first, and begins when a line arrives on its
// stdin.
type child struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	out   *bufio.Scanner
	errs  bytes.Buffer
}

func startChild(t *testing.T, body string, args ...string) *child {
	t.Helper()
	c := &child{cmd: exec.Command(os.Args[0], args...)}
	c.cmd.Env = append(os.Environ(), childEnv+"="+body, "GORACE=atexit_sleep_ms=0")
	c.cmd.Stderr = &c.errs
	stdin, err := c.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.stdin = stdin
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.out = bufio.NewScanner(stdout)
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if c.cmd.ProcessState == nil {
			c.kill()
		}
	})
	if !c.out.Scan() || c.out.Text() != "ready" {
		t.Fatalf("child: %q, %s", c.out.Text(), c.errs.String())
	}
	return c
}

// rest waits for the process, which must succeed.
func (c *child) rest(t *testing.T) {
	t.Helper()
	for c.out.Scan() {
		t.Logf("child: %s", c.out.Text())
	}
	if err := c.cmd.Wait(); err != nil {
		t.Fatalf("child: %v: %s", err, c.errs.String())
	}
}

// kill sends SIGKILL; Wait then reports that signal.
func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}

// childStore opens the store and waits for the start signal.
func childStore(dir string) (*store, error) {
	fmt.Println("ready")
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return nil, err
	}
	return open(dir, Options{})
}

// childNew puts each name that it reads from its stdin with IfNoneMatch, and prints "won" or
// "lost".
func childNew(ctx context.Context, args []string) error {
	store, err := open(args[0], Options{})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	for names := bufio.NewScanner(os.Stdin); names.Scan(); {
		_, err := objstore.Put(ctx, store, names.Text(), []byte(args[1]), objstore.Condition{IfNoneMatch: true})
		switch {
		case err == nil:
			fmt.Println("won")
		case errors.Is(err, objstore.ErrExists):
			fmt.Println("lost")
		default:
			return err
		}
	}
	return nil
}

// childCount adds one to a number repeatedly, each time with the ETag that it read.
func childCount(ctx context.Context, args []string) error {
	store, err := childStore(args[0])
	if err != nil {
		return err
	}
	for done := 0; done < rounds; {
		data, info, err := objstore.ReadAll(ctx, store, "count", 100)
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(string(data))
		if err != nil {
			return err
		}
		next := []byte(strconv.Itoa(n + 1))
		_, err = objstore.Put(ctx, store, "count", next, objstore.Condition{IfMatch: info.ETag})
		switch {
		case err == nil:
			done++
		case !errors.Is(err, objstore.ErrChanged):
			return err
		}
	}
	return nil
}

// childPut puts objects for ever, so that a kill can hit any step.
func childPut(ctx context.Context, args []string) error {
	store, err := childStore(args[0])
	if err != nil {
		return err
	}
	for i := 0; ; i++ {
		name := fmt.Sprintf("k/%d", i%5)
		upload, err := store.Create(ctx, name, objstore.Condition{})
		if err != nil {
			return err
		}
		for range wholePieces {
			if _, err := upload.Write(bytes.Repeat([]byte{byte('a' + i%26)}, pieceSize)); err != nil {
				return err
			}
		}
		if _, err := upload.Commit(ctx); err != nil {
			return err
		}
	}
}

const (
	wholePieces = 8
	pieceSize   = 32 << 10
)

// childLock takes and keeps the lock of the top directory.
func childLock(ctx context.Context, args []string) error {
	root, err := os.OpenRoot(args[0])
	if err != nil {
		return err
	}
	store, err := open(args[0], Options{})
	if err != nil {
		return err
	}
	if _, err := store.lock(ctx, root, "."); err != nil {
		return err
	}
	fmt.Println("ready")
	time.Sleep(time.Hour)
	return nil
}

// TestProcessesRaceNew lets two processes put the same name with IfNoneMatch at once, repeatedly:
// exactly one succeeds each time.
func TestProcessesRaceNew(t *testing.T) {
	dir := t.TempDir()
	store := newStore(t, dir)
	ids := []string{"first", "second"}
	racers := []*child{startChild(t, "new", dir, ids[0]), startChild(t, "new", dir, ids[1])}
	won := make([]int, len(racers))
	for round := range rounds {
		name := fmt.Sprintf("n/%d", round)
		for i := range racers {
			// Alternate which process starts first.
			if _, err := fmt.Fprintln(racers[(i+round)%2].stdin, name); err != nil {
				t.Fatal(err)
			}
		}
		winner := -1
		for i, c := range racers {
			if !c.out.Scan() {
				t.Fatalf("%s ended: %s", ids[i], c.errs.String())
			}
			if c.out.Text() != "won" {
				continue
			}
			if winner >= 0 {
				t.Fatalf("%s was won by both", name)
			}
			winner = i
		}
		if winner < 0 {
			t.Fatalf("%s was won by nobody", name)
		}
		won[winner]++
		expect(t, store, name, ids[winner])
	}
	t.Logf("of %d rounds the processes won %d", rounds, won)
	for _, c := range racers {
		c.stdin.Close()
		c.rest(t)
	}
}

// TestProcessesCount lets processes count together with IfMatch: no step is lost.
func TestProcessesCount(t *testing.T) {
	dir := t.TempDir()
	store := newStore(t, dir)
	put(t, store, "count", "0", objstore.Condition{})
	racers := []*child{startChild(t, "count", dir), startChild(t, "count", dir)}
	for _, c := range racers {
		c.stdin.Close()
	}
	for _, c := range racers {
		c.rest(t)
	}
	expect(t, store, "count", strconv.Itoa(len(racers)*rounds))
}

// TestKill kills a writer at random moments: every object is absent or complete, the lock is
// released, and the temporary files can be swept.
func TestKill(t *testing.T) {
	dir := t.TempDir()
	store := newStore(t, dir)
	left := 0
	for range 12 {
		c := startChild(t, "put", dir)
		c.stdin.Close()
		time.Sleep(rand.N(25 * time.Millisecond))
		c.kill()
		for i := range 5 {
			data, _, err := objstore.ReadAll(t.Context(), store, fmt.Sprintf("k/%d", i), 1<<30)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil || len(data) != wholePieces*pieceSize || bytes.Count(data, data[:1]) != len(data) {
				t.Fatalf("object %d: %d bytes, %v", i, len(data), err)
			}
		}
		put(t, store, "k/free", "", objstore.Condition{})
		left += len(temps(t, dir))
		if _, err := store.sweep(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		if found := temps(t, dir); len(found) > 0 {
			t.Fatalf("not swept: %q", found)
		}
	}
	t.Logf("%d temporary files were left and swept", left)
}

// TestKillHolder waits for a lock that another process holds: without success while it lives, at
// once when it dies.
func TestKillHolder(t *testing.T) {
	dir := t.TempDir()
	store := newStore(t, dir)
	holder := startChild(t, "lock", dir)
	waiting := false
	for wait := 50 * time.Millisecond; !waiting; wait *= 2 { // a slow machine may not come to the lock
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		_, err := objstore.Put(ctx, store, "x", []byte("1"), objstore.Condition{})
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		waiting = strings.Contains(err.Error(), lockName)
	}
	if found := temps(t, dir); len(found) > 0 {
		t.Fatal(found)
	}
	// A store opened at a higher directory waits for the same lock.
	holder.kill()
	put(t, store, "x", "2", objstore.Condition{IfNoneMatch: true})
	expect(t, store, "x", "2")
}

// childHold shares the store's lock until it is killed.
func childHold(ctx context.Context, args []string) error {
	store, err := open(args[0], Options{})
	if err != nil {
		return err
	}
	release, err := store.share(ctx, "pack of "+args[1])
	if err != nil {
		return err
	}
	defer release()
	fmt.Println("ready")
	time.Sleep(time.Hour)
	return nil
}

// TestKilledHolder checks that the shared lock ends with its process, and that the next refusal
// does not name that process.
func TestKilledHolder(t *testing.T) {
	store := newStore(t, t.TempDir())
	for _, name := range []string{"first", "second"} {
		c := startChild(t, "hold", store.dir, name)
		_, err := store.exclude(t.Context(), "prune")
		if !errors.Is(err, objstore.ErrBusy) {
			t.Fatal(err)
		}
		wantText(t, err, fmt.Sprintf("in use: pack of %s, process %d on ", name, c.cmd.Process.Pid))
		c.kill()
	}
	release, err := store.exclude(t.Context(), "prune")
	if err != nil {
		t.Fatal(err)
	}
	release()
}
