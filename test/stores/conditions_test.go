package stores_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/shardtool/shardtool/objstore"
	s3store "github.com/shardtool/shardtool/objstore/s3"
	"github.com/shardtool/shardtool/test/proxy"
	"github.com/shardtool/shardtool/writer"
)

// writers exceeds the connections of one upload and stays below a server's limits.
const writers = 32

// race puts one name from many goroutines, each with its own store, like processes on many
// machines. Exactly one may succeed. race returns its Info.
func race(t *testing.T, stores []objstore.Store, name string, round, size int, cond objstore.Condition, lost error) objstore.Info {
	t.Helper()
	var group sync.WaitGroup
	infos, errs := make([]objstore.Info, len(stores)), make([]error, len(stores))
	data := func(writer int) []byte { return pattern(uint64(1000+round*len(stores)+writer), size+writer) }
	start := make(chan struct{})
	for i, store := range stores {
		group.Go(func() {
			<-start
			infos[i], errs[i] = objstore.Put(t.Context(), store, name, data(i), cond)
		})
	}
	close(start)
	group.Wait()
	winner := -1
	for i, err := range errs {
		switch {
		case err == nil && winner >= 0:
			t.Fatalf("round %d: writers %d and %d both won", round, winner, i)
		case err == nil:
			winner = i
		case !errors.Is(err, lost):
			t.Fatalf("round %d: writer %d: %v; want %v", round, i, err, lost)
		}
	}
	if winner < 0 {
		t.Fatalf("round %d: nobody won: %v", round, errs[0])
	}
	got, info, err := objstore.ReadAll(t.Context(), stores[0], name, 64<<20)
	if err != nil || !bytes.Equal(got, data(winner)) || info.ETag != infos[winner].ETag {
		t.Fatalf("round %d: writer %d won with %+v, there is %+v: %v", round, winner, infos[winner], info, err)
	}
	return info
}

// TestRaces races conditional puts, small and in parts, also if answers are lost after the server
// has acted, so that the winner must be determined.
func TestRaces(t *testing.T) {
	s, _ := versity(t)
	for name, opt := range map[string]proxy.Options{
		"clean": {},
		"lost":  {Faults: proxy.Faults{Lost: 0.06, Busy: 0.02}, Match: func(r *http.Request) bool { return r.Method != http.MethodGet }},
	} {
		for kind, size := range map[string]int{"put": 20_000, "parts": 5<<20 + 100} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				opt.Seed = 21
				through, p := s.faulty(t, opt)
				bucket := s.bucket(t)
				n, rounds := writers, 3
				if kind == "parts" {
					n, rounds = 6, 2 // each holds some MiB
				}
				stores := make([]objstore.Store, n)
				for i := range stores {
					stores[i] = through.open(t, bucket, "p", s3store.Options{UploadPartSize: 5 << 20})
				}
				for round := range rounds {
					race(t, stores, fmt.Sprintf("new/%d", round), round, size, objstore.Condition{IfNoneMatch: true}, objstore.ErrExists)
				}
				info, err := objstore.Put(t.Context(), stores[0], "replaced", []byte("start"), objstore.Condition{})
				if err != nil {
					t.Fatal(err)
				}
				for round := range rounds {
					info = race(t, stores, "replaced", round, size, objstore.Condition{IfMatch: info.ETag}, objstore.ErrChanged)
				}
				if opt.Faults != (proxy.Faults{}) && p.Counts().Lost == 0 {
					t.Error("no answer was lost")
				}
			})
		}
	}
}

// TestIgnoredConditions writes to a server that ignores conditional headers, which is detected
// before anything is overwritten.
func TestIgnoredConditions(t *testing.T) {
	s, _ := versity(t)
	bucket := s.bucket(t)
	direct := s.open(t, bucket, "", s3store.Options{})
	info, err := objstore.Put(t.Context(), direct, "manifest", []byte("precious"), objstore.Condition{IfNoneMatch: true})
	if err != nil {
		t.Fatal(err)
	}
	for name, cond := range map[string]objstore.Condition{
		"exists": {IfNoneMatch: true}, "other tag": {IfMatch: "0123456789abcdef0123456789abcdef"}, "its tag": {IfMatch: info.ETag},
	} {
		t.Run(name, func(t *testing.T) {
			through, _ := s.faulty(t, proxy.Options{IgnoreConditions: true, Signer: s.keys(), Region: s.region})
			store := through.open(t, bucket, "", s3store.Options{})
			for _, target := range []string{"manifest", "new"} {
				_, err := objstore.Put(t.Context(), store, target, []byte("other"), cond)
				if !errors.Is(err, s3store.ErrUnconditional) {
					t.Fatalf("%s: %v", target, err)
				}
				wantText(t, s, err, "ignores If-", "nothing was published", "use a server that honours it")
			}
			got, now, err := objstore.ReadAll(t.Context(), direct, "manifest", 100)
			if err != nil || string(got) != "precious" || now.ETag != info.ETag {
				t.Fatalf("there is %q, %+v, %v", got, now, err)
			}
			var names []string
			for info, err := range direct.List(t.Context(), "") {
				if err != nil {
					t.Fatal(err)
				}
				names = append(names, info.Name)
			}
			if len(names) != 1 {
				t.Errorf("the question left something behind: %q", names)
			}
		})
	}
}

// TestIgnoredAtCompletion lets two writers pack large shards to a server that ignores conditions
// when a multipart upload is completed: nobody publishes a data set whose shards the other could
// have replaced.
func TestIgnoredAtCompletion(t *testing.T) {
	s, _ := versity(t)
	bucket := s.bucket(t)
	through, _ := s.faulty(t, proxy.Options{IgnoreAtCompletion: true, Signer: s.keys(), Region: s.region})
	small := through.open(t, bucket, "small", s3store.Options{})
	for _, want := range []error{nil, objstore.ErrExists} {
		if _, err := objstore.Put(t.Context(), small, "object", []byte("data"), objstore.Condition{IfNoneMatch: true}); !errors.Is(err, want) {
			t.Fatalf("%v, want %v", err, want)
		}
	}
	var group sync.WaitGroup
	for i := range 2 {
		store := through.open(t, bucket, "packed", s3store.Options{UploadPartSize: 5 << 20})
		group.Go(func() {
			w, err := writer.New(t.Context(), store, writer.Options{Plain: true, Workers: 1})
			if err != nil {
				t.Error(err)
				return
			}
			defer w.Abort()
			data := pattern(uint64(i), 6<<20)
			if err := w.Write(t.Context(), writer.Sample{Key: "k", Fields: []writer.Field{{Name: "bin", Data: data}}}); err != nil {
				t.Error(err)
			}
			_, err = w.Close(t.Context())
			if !errors.Is(err, s3store.ErrUnconditional) {
				t.Errorf("writer %d: %v", i, err)
			}
			wantText(t, s, err, "ignores If-None-Match at the completion of an upload in parts", "use a server that honours it")
		})
	}
	group.Wait()
	for info, err := range s.open(t, bucket, "packed", s3store.Options{}).List(t.Context(), "") {
		t.Errorf("left: %+v, %v", info, err)
	}
}

// TestIgnoredConditionsOnRead replaces an object under a handle on a server that ignores If-Match:
// the ETag of the answer counts, not the one requested.
func TestIgnoredConditionsOnRead(t *testing.T) {
	s, _ := versity(t)
	bucket := s.bucket(t)
	direct := s.open(t, bucket, "", s3store.Options{})
	if _, err := objstore.Put(t.Context(), direct, "object", pattern(1, 10_000), objstore.Condition{}); err != nil {
		t.Fatal(err)
	}
	through, _ := s.faulty(t, proxy.Options{IgnoreConditions: true, Signer: s.keys(), Region: s.region})
	object, err := through.open(t, bucket, "", s3store.Options{}).Open(t.Context(), "object")
	if err != nil {
		t.Fatal(err)
	}
	defer object.Close()
	if err := object.ReadAt(t.Context(), make([]byte, 100), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := objstore.Put(t.Context(), direct, "object", pattern(2, 10_000), objstore.Condition{}); err != nil {
		t.Fatal(err)
	}
	if err := object.ReadAt(t.Context(), make([]byte, 100), 200); !errors.Is(err, objstore.ErrChanged) {
		t.Fatalf("a read from the version that replaced it: %v", err)
	}
}
