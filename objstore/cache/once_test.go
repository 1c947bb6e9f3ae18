package cache

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/shardtool/shardtool/objstore"
	httpstore "github.com/shardtool/shardtool/objstore/http"
)

// childFetch reads the shards at the URL args[0] through the cache at args[1] of args[2] bytes, in
// args[5] epochs, as rank args[3] of args[4]: in each epoch other pieces, in an order that all
// processes know, several at once.
func childFetch(ctx context.Context, args []string) error {
	fmt.Println("ready")
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	var numbers [4]int
	for i := range numbers {
		var err error
		if numbers[i], err = strconv.Atoi(args[2+i]); err != nil {
			return err
		}
	}
	size, rank, world, epochs := numbers[0], numbers[1], numbers[2], numbers[3]
	source, err := httpstore.New(args[0], httpstore.Options{ReadOptions: objstore.ReadOptions{NoHedge: true}}) // which would count
	if err != nil {
		return err
	}
	c, err := New(args[1], Options{Size: int64(size)})
	if err != nil {
		return err
	}
	store := c.Wrap(source)
	for epoch := range epochs {
		order := rand.New(rand.NewPCG(1, uint64(epoch))).Perm(sharedShards * sharedSize / sharedPiece)
		group, ctx := errgroup.WithContext(ctx)
		group.SetLimit(8)
		for i := rank; i < len(order); i += world {
			group.Go(func() error { return fetchPiece(ctx, store, order[i]) })
		}
		if err := group.Wait(); err != nil {
			return err
		}
	}
	if s := c.Stats(); s.Damaged != 0 || s.Errors != 0 {
		return fmt.Errorf("%+v", s)
	}
	return c.Close()
}

func fetchPiece(ctx context.Context, store objstore.Store, piece int) error {
	const perShard = sharedSize / sharedPiece
	shard, off := piece/perShard, piece%perShard*sharedPiece
	object, err := objstore.TraitsOf(store).OpenAs(ctx, fmt.Sprint(shard), fmt.Sprintf("hash %d", shard))
	if err != nil {
		return err
	}
	defer object.Close()
	p := make([]byte, sharedPiece)
	if err := object.ReadAt(ctx, p, int64(off)); err != nil {
		return err
	}
	if !bytes.Equal(p, pattern(uint64(shard), sharedSize)[off:off+sharedPiece]) {
		return fmt.Errorf("shard %d: other bytes at %d", shard, off)
	}
	return nil
}

// counter serves the shards of childFetch and counts the bytes that were asked for.
type counter struct {
	bytes  atomic.Int64
	server *httptest.Server
}

func newCounter(t *testing.T) *counter {
	c := &counter{}
	c.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		shard, err := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/"))
		if err != nil || shard >= sharedShards {
			http.NotFound(w, r)
			return
		}
		var from, to int64
		if _, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &from, &to); err == nil {
			c.bytes.Add(to + 1 - from)
		}
		w.Header().Set("ETag", fmt.Sprintf("%q", r.URL.Path))
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(pattern(uint64(shard), sharedSize)))
	}))
	t.Cleanup(c.server.Close)
	return c
}

// TestOnce lets eight processes of a host read through one cache: together they fetch each byte
// once, whether they read the same, as the peers of a rank, or are ranks that read other parts in
// each epoch. Also when their sizes differ, or one of them is killed while it fetches.
func TestOnce(t *testing.T) {
	const once = sharedShards * sharedSize
	for _, c := range []struct {
		name          string
		world, epochs int
		size          func(process int) int64
		killed        bool
		most          int64
	}{
		// A process that is not given a processor for long loses the patience of the others.
		{"peers", 1, 1, func(int) int64 { return 2 * once }, false, once * 110 / 100},
		{"ranks", 8, 3, func(int) int64 { return 2 * once }, false, once * 105 / 100},
		{"sizes", 8, 3, func(process int) int64 { return int64(2+process) * once }, false, once * 105 / 100},
		// The killed process has fetched at most eight ranges that another fetches again.
		{"killed", 1, 1, func(int) int64 { return 2 * once }, true, once*110/100 + 8*sharedPiece},
	} {
		t.Run(c.name, func(t *testing.T) {
			served, dir := newCounter(t), t.TempDir()
			var processes []*child
			for i := range 8 {
				processes = append(processes, startChild(t, "fetch", served.server.URL, dir, fmt.Sprint(c.size(i)),
					fmt.Sprint(i%c.world), fmt.Sprint(c.world), fmt.Sprint(c.epochs)))
			}
			for _, p := range processes {
				p.stdin.Close()
			}
			if c.killed {
				for served.bytes.Load() < once/4 {
					time.Sleep(time.Millisecond)
				}
				processes[0].kill()
				processes = processes[1:]
			}
			for _, p := range processes {
				p.wait(t)
			}
			if n := served.bytes.Load(); n < once || n > c.most {
				t.Errorf("%d bytes fetched, want %d to %d", n, once, c.most)
			}
			reader := newCache(t, dir, 2*once)
			if used, disk := reader.Stats().Used, onDisk(t, dir); used != disk {
				t.Errorf("%d bytes in use, %d there", used, disk)
			}
		})
	}
}
