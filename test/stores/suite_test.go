package stores_test

import (
	"testing"

	"github.com/shardtool/shardtool/objstore"
	s3store "github.com/shardtool/shardtool/objstore/s3"
	"github.com/shardtool/shardtool/objstore/storetest"
	"github.com/shardtool/shardtool/objstore/storetest/fake"
	"github.com/shardtool/shardtool/test/proxy"
)

func TestFake(t *testing.T) {
	s := inMemory(t)
	storetest.Run(t, func(t *testing.T) objstore.Store { return s.open(t, s.bucket(t), "", s3store.Options{}) })
}

func TestVersity(t *testing.T) {
	s, _ := versity(t)
	storetest.Run(t, func(t *testing.T) objstore.Store { return s.open(t, s.bucket(t), "", s3store.Options{}) })
}

// TestVersityPrefix runs the suite below a prefix, with other objects outside it.
func TestVersityPrefix(t *testing.T) {
	s, _ := versity(t)
	storetest.Run(t, func(t *testing.T) objstore.Store {
		bucket := s.bucket(t)
		beside := s.open(t, bucket, "", s3store.Options{})
		for _, name := range []string{"a", "dat", "data/set", "data/sets0/x", "z/data/sets/x"} {
			if _, err := objstore.Put(t.Context(), beside, name, []byte("beside"), objstore.Condition{}); err != nil {
				t.Fatal(err)
			}
		}
		return s.open(t, bucket, "data/sets", s3store.Options{})
	})
}

// mixed are all temporary faults of a network or a busy server.
var mixed = proxy.Faults{Reset: 0.04, Lost: 0.02, Busy: 0.03, Short: 0.02}

// front is a server in this process that hands requests on.
func front(t *testing.T, endpoint string) *fake.Server {
	t.Helper()
	p, err := proxy.New(endpoint, proxy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return fake.New(t, p.ServeHTTP)
}

// TestVersityNetwork runs the suite of bad networks.
func TestVersityNetwork(t *testing.T) {
	s, _ := versity(t)
	storetest.RunNetwork(t, storetest.Network{Part: 5 << 20, Open: func(t *testing.T, _ map[string][]byte, o objstore.ReadOptions) (objstore.Store, storetest.Server) {
		f := front(t, s.endpoint)
		opt := s3store.Options{ReadOptions: o, WriteTimeout: o.FirstByteTimeout, UploadPartSize: 5 << 20}
		return s.at(f.URL).open(t, s.bucket(t), "p", opt), f
	}})
}

func TestVersityWriters(t *testing.T) {
	s, _ := versity(t)
	storetest.RunWriters(t, 8<<20, s.open(t, s.bucket(t), "", s3store.Options{}))
}

// TestFakeFaults runs the suite over an unreliable network.
func TestFakeFaults(t *testing.T) {
	s := inMemory(t)
	storetest.Run(t, func(t *testing.T) objstore.Store {
		through, _ := s.faulty(t, proxy.Options{Seed: 12, Faults: mixed})
		return through.open(t, s.bucket(t), "p", s3store.Options{})
	})
}
