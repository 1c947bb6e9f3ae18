package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/shardtool/shardtool/objstore"
)

func isMissing(err error) bool { return errors.Is(err, fs.ErrNotExist) }

func testConditions(t *testing.T, store objstore.Store) {
	try := func(data string, cond objstore.Condition) (objstore.Info, error) {
		return objstore.Put(t.Context(), store, "m/x.json", []byte(data), cond)
	}
	_, err := try("no", objstore.Condition{IfMatch: "anything"})
	wantError(t, "IfMatch on nothing", err, objstore.ErrChanged)
	absent(t, store, "m/x.json")

	first, err := try("1", objstore.Condition{IfNoneMatch: true})
	if err != nil {
		t.Fatal(err)
	}
	_, err = try("no", objstore.Condition{IfNoneMatch: true})
	wantError(t, "IfNoneMatch on something", err, objstore.ErrExists)
	expect(t, store, "m/x.json", []byte("1"))

	second, err := try("22", objstore.Condition{IfMatch: first.ETag})
	if err != nil {
		t.Fatal(err)
	}
	_, err = try("no", objstore.Condition{IfMatch: first.ETag})
	wantError(t, "IfMatch with the old tag", err, objstore.ErrChanged)
	expect(t, store, "m/x.json", []byte("22"))

	// The condition is checked at the commit and not at the beginning.
	late, err := store.Create(t.Context(), "m/x.json", objstore.Condition{IfMatch: second.ETag})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := late.Write([]byte("late")); err != nil {
		t.Fatal(err)
	}
	put(t, store, "m/x.json", []byte("333"))
	_, err = late.Commit(t.Context())
	wantError(t, "a commit after another's", err, objstore.ErrChanged)
	if err := late.Abort(); err != nil {
		t.Fatal(err)
	}
	expect(t, store, "m/x.json", []byte("333"))
}

// testRaceNew lets 16 writers put one name at once, repeatedly: exactly one succeeds, and its bytes
// are stored.
func testRaceNew(t *testing.T, store objstore.Store) {
	for round := range 5 {
		name := fmt.Sprintf("race/%d", round)
		race(t, store, name, objstore.Condition{IfNoneMatch: true}, objstore.ErrExists)
	}
}

// testRaceReplace does the same with IfMatch.
func testRaceReplace(t *testing.T, store objstore.Store) {
	info := put(t, store, "race", []byte("start"))
	for range 5 {
		info = race(t, store, "race", objstore.Condition{IfMatch: info.ETag}, objstore.ErrChanged)
	}
}

// races counts the calls of race.
var races atomic.Int64

func race(t *testing.T, store objstore.Store, name string, cond objstore.Condition, lost error) objstore.Info {
	t.Helper()
	const writers = 16
	var (
		group sync.WaitGroup
		infos [writers]objstore.Info
		errs  [writers]error
		start = make(chan struct{})
		round = uint64(races.Add(1))
		// Every race writes other bytes: if an ETag is a digest, equal bytes are the same version.
		data   = func(writer int) []byte { return pattern(round*writers+uint64(writer), 50_000+writer) }
		winner = -1
	)
	for writer := range writers {
		group.Go(func() {
			<-start
			infos[writer], errs[writer] = objstore.Put(t.Context(), store, name, data(writer), cond)
		})
	}
	close(start)
	group.Wait()
	for writer, err := range errs {
		switch {
		case err == nil && winner >= 0:
			t.Fatalf("%s: writers %d and %d both won", name, winner, writer)
		case err == nil:
			winner = writer
		case !errors.Is(err, lost):
			t.Fatalf("%s: writer %d: %v; want %v", name, writer, err, lost)
		}
	}
	if winner < 0 {
		t.Fatalf("%s: nobody won", name)
	}
	got, info, err := objstore.ReadAll(t.Context(), store, name, 1<<20)
	if err != nil || !bytes.Equal(got, data(winner)) || !same(info, infos[winner]) {
		t.Fatalf("%s: writer %d won with %+v, there is %+v: %v", name, winner, infos[winner], info, err)
	}
	return info
}

func testDelete(t *testing.T, store objstore.Store) {
	for _, name := range []string{"none", "no/such/dir"} {
		if err := store.Delete(t.Context(), name); err != nil {
			t.Fatalf("delete of the missing %s: %v", name, err)
		}
	}
	put(t, store, "d/one", []byte("1"))
	put(t, store, "d/two", []byte("2"))
	// A prefix of a name is not an object.
	if err := store.Delete(t.Context(), "d"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := store.Delete(t.Context(), "d/one"); err != nil {
			t.Fatal(err)
		}
		absent(t, store, "d/one")
	}
	expect(t, store, "d/two", []byte("2"))
	info, err := objstore.Put(t.Context(), store, "d/one", []byte("again"), objstore.Condition{IfNoneMatch: true})
	if err != nil || info.Size != 5 {
		t.Fatalf("put after delete: %+v, %v", info, err)
	}
}

// RunWriters has two writers create and replace objects, by one request and in parts: in each of 50
// trials exactly one of them wins, and its bytes are stored. The stores may be one.
func RunWriters(t *testing.T, part int, stores ...objstore.Store) {
	for trial := range 50 {
		name := fmt.Sprint("trial-", trial)
		cond, lost := objstore.Condition{IfNoneMatch: trial%2 == 0}, objstore.ErrExists
		if !cond.IfNoneMatch {
			cond.IfMatch, lost = put(t, stores[0], name, []byte("old")).ETag, objstore.ErrChanged
		}
		size := 1000
		if trial%10 < 2 {
			size = part + 1
		}
		var errs [2]error
		var group sync.WaitGroup
		for i := range errs {
			group.Go(func() {
				_, errs[i] = objstore.Put(t.Context(), stores[i%len(stores)], name, pattern(uint64(2*trial+i), size),
					cond)
			})
		}
		group.Wait()
		winner := 0
		if errs[0] != nil {
			winner = 1
		}
		if errs[winner] != nil || !errors.Is(errs[1-winner], lost) {
			t.Fatalf("trial %d: %v", trial, errs)
		}
		expect(t, stores[0], name, pattern(uint64(2*trial+winner), size))
	}
}
