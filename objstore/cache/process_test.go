package cache

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/local"
)

// children are the bodies of helper processes, which run the test binary again with further
// arguments.
var children = map[string]func(ctx context.Context, args []string) error{
	"read":   childRead,
	"fetch":  childFetch,
	"record": childRecord,
	"range":  childRange,
}

const (
	sharedShards = 8
	sharedSize   = 256 << 10
	sharedPiece  = 16 << 10
)

// child is a running helper process. It prints "ready" first, and begins when its stdin ends.
type child struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
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
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if c.cmd.ProcessState == nil {
			c.kill()
		}
	})
	if out := bufio.NewScanner(stdout); !out.Scan() || out.Text() != "ready" {
		t.Fatalf("child: %q, %s", out.Text(), c.errs.String())
	}
	return c
}

// kill sends SIGKILL; Wait then reports that signal.
func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}

func (c *child) wait(t *testing.T) {
	t.Helper()
	if err := c.cmd.Wait(); err != nil {
		t.Fatalf("child: %v: %s", err, c.errs.String())
	}
}

// childRead reads all shards of the source at args[0] args[3] times in random orders, through the
// cache at args[1] of args[2] bytes, and checks every byte.
func childRead(ctx context.Context, args []string) error {
	fmt.Println("ready")
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	size, err := strconv.ParseInt(args[2], 10, 64)
	if err != nil {
		return err
	}
	epochs, err := strconv.Atoi(args[3])
	if err != nil {
		return err
	}
	source, err := local.New(args[0], local.Options{})
	if err != nil {
		return err
	}
	c, err := New(args[1], Options{Size: size})
	if err != nil {
		return err
	}
	store := c.Wrap(source)
	for range epochs {
		for _, shard := range rand.Perm(sharedShards) {
			if err := readShared(ctx, store, shard); err != nil {
				return err
			}
		}
	}
	if s := c.Stats(); s.Damaged != 0 || s.Errors != 0 {
		return fmt.Errorf("%+v", s)
	}
	return c.Close()
}

func readShared(ctx context.Context, store objstore.Store, shard int) error {
	data := pattern(uint64(shard), sharedSize)
	object, err := objstore.TraitsOf(store).OpenAs(ctx, fmt.Sprint(shard), fmt.Sprintf("hash %d", shard))
	if err != nil {
		return err
	}
	defer object.Close()
	p := make([]byte, sharedPiece)
	for _, piece := range rand.Perm(sharedSize / sharedPiece) {
		off := piece * sharedPiece
		if err := object.ReadAt(ctx, p, int64(off)); err != nil {
			return err
		}
		if !bytes.Equal(p, data[off:off+sharedPiece]) {
			return fmt.Errorf("shard %d: other bytes at %d", shard, off)
		}
	}
	return nil
}

// childRecord blocks for ever while it holds the lock of the folder's record.
func childRecord(_ context.Context, args []string) error {
	c, err := New(args[0], Options{Size: 1 << 30})
	if err != nil {
		return err
	}
	return c.update(func(int64, bool) (int64, error) {
		fmt.Println("ready")
		time.Sleep(time.Hour)
		return 0, nil
	})
}

// childRange blocks for ever while it fetches the first 200 bytes of the object of dataset, for
// which it has made room.
func childRange(ctx context.Context, args []string) error {
	c, err := New(args[0], Options{Size: 1 << 30})
	if err != nil {
		return err
	}
	if t, _ := c.claim(ctx, c.groupOf("far:"), key{id: identityGiven("hash"), n: 200}); t == nil {
		return errors.New("not claimed")
	}
	fmt.Println("ready")
	time.Sleep(time.Hour)
	return nil
}

func sharedSource(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	source, err := local.New(dir, local.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	for shard := range sharedShards {
		put(t, source, fmt.Sprint(shard), pattern(uint64(shard), sharedSize))
	}
	return dir
}

// watch checks the bound repeatedly until stop, and returns the largest size it saw.
func watch(t *testing.T, dir string, limit int64, stop <-chan struct{}) (most int64) {
	t.Helper()
	for last := false; ; {
		most = max(most, onDisk(t, dir))
		if most > limit {
			t.Errorf("%d bytes in the folder, the limit is %d", most, limit)
		}
		if last || most > limit {
			return most
		}
		select {
		case <-stop:
			last = true // this look may have been long before
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// TestProcesses lets two and eight processes read through one folder that holds a third of the data
// set.
func TestProcesses(t *testing.T) {
	source := sharedSource(t)
	for _, processes := range []int{2, 8} {
		t.Run(strconv.Itoa(processes), func(t *testing.T) {
			dir := t.TempDir()
			limit := int64(sharedShards * sharedSize / 3)
			var readers []*child
			for range processes {
				readers = append(readers, startChild(t, "read", source, dir, fmt.Sprint(limit), "4"))
			}
			stop := make(chan struct{})
			most := make(chan int64)
			go func() { most <- watch(t, dir, limit, stop) }()
			for _, r := range readers {
				r.stdin.Close()
			}
			for _, r := range readers {
				r.wait(t)
			}
			close(stop)
			if n := <-most; n < limit*8/10 {
				t.Errorf("no more than %d bytes of %d were used", n, limit)
			}
			c := newCache(t, dir, limit)
			if used, disk := c.Stats().Used, onDisk(t, dir); used != disk {
				t.Fatalf("%d used, %d there", used, disk)
			}
		})
	}
}

// TestKill kills readers at random moments while others continue: the folder is undamaged, counted
// correctly, within the bound, and without locks.
func TestKill(t *testing.T) {
	source := sharedSource(t)
	dir := t.TempDir()
	limit := int64(sharedShards * sharedSize / 3)
	survivor := startChild(t, "read", source, dir, fmt.Sprint(limit), "1000000")
	survivor.stdin.Close()
	for round := range 8 {
		if round == 4 {
			survivor.kill()
		}
		victims := []*child{
			startChild(t, "read", source, dir, fmt.Sprint(limit), "1000000"),
			startChild(t, "read", source, dir, fmt.Sprint(limit), "1000000"),
		}
		for _, v := range victims {
			v.stdin.Close()
		}
		time.Sleep(rand.N(60 * time.Millisecond))
		for _, v := range victims {
			v.kill()
		}
		if disk := onDisk(t, dir); disk > limit {
			t.Fatalf("%d bytes in the folder, the limit is %d", disk, limit)
		}
		// This makes room for the next round, and so changes the folder during the kills.
		if round%2 == 0 {
			for _, path := range pieces(t, dir)[:min(10, len(pieces(t, dir)))] {
				os.Remove(path)
			}
		}
	}
	c := newCache(t, dir, limit)
	store, err := local.New(source, local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	wrapped := c.Wrap(store)
	for range 2 {
		for shard := range sharedShards {
			if err := readShared(t.Context(), wrapped, shard); err != nil {
				t.Fatal(err)
			}
		}
	}
	s := c.Stats()
	if disk := onDisk(t, dir); s.Used != disk || disk > limit || disk < limit*8/10 || s.Errors != 0 || s.Damaged != 0 {
		t.Fatalf("%d there: %+v", disk, s)
	}
	if left, err := os.ReadDir(filepath.Join(dir, tempDir)); err != nil || len(left) > 0 {
		t.Fatal(left, err)
	}
}

// TestRecordHeld reads while a process that is stopped holds the lock of the folder's record: the
// others read on and store nothing. When it is killed they store again.
func TestRecordHeld(t *testing.T) {
	dir := t.TempDir()
	source, data := dataset(t, "far:", 1, 1000)
	var log lockedBuffer
	clock := &clock{time.Now()} // stands still, so that no pause ends
	c := newCacheWith(t, dir, Options{Size: 1 << 20, Log: slog.New(slog.NewTextHandler(&log, nil)), now: clock.now})
	object := open(t, c.Wrap(source), "shard", "hash")
	expect(t, object, 0, 100, data)
	holder := startChild(t, "record", dir)
	for off := range 5 {
		expect(t, object, 0, 100, data) // cached: the lock is not asked for
		expect(t, object, off, 200, data)
	}
	if s := c.Stats(); s.Hits != 5 || s.Kept != 1 || s.Errors != 1 {
		t.Fatalf("%+v", s)
	}
	if !bytes.Contains([]byte(log.String()), []byte("stopped process")) {
		t.Fatal(log.String())
	}
	holder.kill()
	c.pause.until.Store(0)
	expect(t, object, 0, 300, data)
	if s, disk := c.Stats(), onDisk(t, dir); s.Kept != 2 || s.Used != disk || disk != 2*grain {
		t.Fatalf("%d there: %+v", disk, s)
	}
}

// TestFetchHeld reads a range that a stopped process fetches: the read loses patience, asks the
// source, and stores nothing. Once the process is killed, a read that waits takes over its lock and
// its room.
func TestFetchHeld(t *testing.T) {
	dir := t.TempDir()
	source, data := dataset(t, "far:", 1, 1000)
	c := newCache(t, dir, 1<<20)
	object := open(t, c.Wrap(source), "shard", "hash")
	holder := startChild(t, "range", dir)
	c.learn(1) // fetches are fast: the patience is the least
	c.least = time.Millisecond
	expect(t, object, 0, 200, data)
	if s := c.Stats(); s.Kept != 0 || s.Errors != 0 || source.reads.Load() != 1 {
		t.Fatalf("%d reads, %+v", source.reads.Load(), s)
	}
	c.slowest.Store(0) // patient
	waited := make(chan error)
	go func() { waited <- object.ReadAt(t.Context(), make([]byte, 200), 0) }()
	holder.kill()
	if err := <-waited; err != nil {
		t.Fatal(err)
	}
	expect(t, object, 0, 200, data)
	if s, disk := c.Stats(), onDisk(t, dir); s.Kept != 1 || s.Hits != 1 || s.Errors != 0 || s.Used != disk || disk != grain || source.reads.Load() != 2 {
		t.Fatalf("%d reads, %d there, %+v", source.reads.Load(), disk, s)
	}
}
