package storetest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"testing"

	"github.com/shardtool/shardtool/objstore"
)

// ErrInjected is the failure of a [Faulty] store whose Fault names no other.
var ErrInjected = errors.New("injected fault")

// Fault says which operation of a Faulty store fails, and how. Operations are counted from 0: every Open, Stat, Create,
// Delete, ReadAt, Info, Write and Commit is one, and so is every step of a List, its end included. Close and Abort are
// none.
type Fault struct {
	// At is the operation that fails; a negative one never comes.
	At int
	// After lets the operation take effect before it fails, as when the answer is lost: a Commit has then put the object.
	After bool
	// Short lets a Write store, and a ReadAt fill, the first half of the bytes before it fails.
	Short bool
	// Kill fails every later operation too, without effect, as if the process had died.
	Kill bool
	// Err is the failure, ErrInjected when nil.
	Err error
}

// Faulty is an objstore.Store over another, of which one operation fails. It is as concurrent as the store below; the
// order in which concurrent operations are counted is theirs.
type Faulty struct {
	inner objstore.Store
	fault Fault

	mu    sync.Mutex
	ops   int
	fired bool
}

// NewFaulty wraps a store.
func NewFaulty(inner objstore.Store, fault Fault) *Faulty {
	if fault.Err == nil {
		fault.Err = ErrInjected
	}
	return &Faulty{inner: inner, fault: fault}
}

// EachFault runs test with the fault at operation 0, 1, 2 and so on, each time over a new store from open, until a run
// ends in which none fired: that one must have succeeded, which is for test to check by Fired. At of fault is ignored.
// It returns the number of operations of that last run.
func EachFault(t *testing.T, open func(t *testing.T) objstore.Store, fault Fault, test func(t *testing.T, store *Faulty)) int {
	t.Helper()
	// A test that retries for ever would never run clean.
	const limit = 100_000
	for fault.At = 0; fault.At < limit; fault.At++ {
		store := NewFaulty(nil, fault)
		ok := t.Run(fmt.Sprintf("operation=%d", fault.At), func(t *testing.T) {
			store.inner = open(t)
			test(t, store)
		})
		if !ok || !store.Fired() {
			return store.Ops()
		}
	}
	t.Fatalf("a fault still fires at operation %d", limit)
	return 0
}

// Ops is the number of operations so far.
func (f *Faulty) Ops() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ops
}

// Fired reports whether an operation has failed by the Fault.
func (f *Faulty) Fired() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fired
}

// effect is what becomes of one operation.
type effect struct {
	run   bool // it reaches the store below
	half  bool // with half of the bytes
	fails bool
}

func (f *Faulty) next() effect {
	f.mu.Lock()
	defer f.mu.Unlock()
	op := f.ops
	f.ops++
	switch {
	case op == f.fault.At && f.fault.At >= 0:
		f.fired = true
		return effect{run: f.fault.After, half: f.fault.Short, fails: true}
	case f.fired && f.fault.Kill:
		return effect{fails: true}
	}
	return effect{run: true}
}

// died reports whether the process has died, as far as the fault is concerned.
func (f *Faulty) died() bool { return f.fault.Kill && f.Fired() }

func (f *Faulty) fail(op, name string) error {
	return objstore.NewError(op, f.String(), name, f.fault.Err)
}

// String is the address of the store below.
func (f *Faulty) String() string { return f.inner.String() }

// Traits returns those of the store below that no fault concerns: the requests in flight. OpenAs would
// open objects that never fail, and locks and temporary files are not part of the contract of a Store.
func (f *Faulty) Traits() objstore.Traits {
	traits := objstore.TraitsOf(f.inner)
	return objstore.Traits{Requests: traits.Requests, MostRequests: traits.MostRequests, Reserve: traits.Reserve}
}

// Open is one operation.
func (f *Faulty) Open(ctx context.Context, name string) (objstore.Object, error) {
	e := f.next()
	if e.fails && !e.run {
		return nil, f.fail("get", name)
	}
	object, err := f.inner.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	if e.fails {
		object.Close()
		return nil, f.fail("get", name)
	}
	return &faultyObject{store: f, inner: object, name: name}, nil
}

// Stat is one operation.
func (f *Faulty) Stat(ctx context.Context, name string) (objstore.Info, error) {
	if f.next().fails {
		return objstore.Info{}, f.fail("stat", name)
	}
	return f.inner.Stat(ctx, name)
}

// Create is one operation. One that fails after it took effect leaves an upload that nobody can reach: it is aborted.
func (f *Faulty) Create(ctx context.Context, name string, cond objstore.Condition) (objstore.Upload, error) {
	e := f.next()
	if e.fails && !e.run {
		return nil, f.fail("put", name)
	}
	upload, err := f.inner.Create(ctx, name, cond)
	if err != nil {
		return nil, err
	}
	if e.fails {
		return nil, errors.Join(f.fail("put", name), upload.Abort())
	}
	return &faultyUpload{store: f, inner: upload, name: name}, nil
}

// Delete is one operation.
func (f *Faulty) Delete(ctx context.Context, name string) error {
	e := f.next()
	if e.fails && !e.run {
		return f.fail("delete", name)
	}
	if err := f.inner.Delete(ctx, name); err != nil || !e.fails {
		return err
	}
	return f.fail("delete", name)
}

// List makes every step, and the end, one operation.
func (f *Faulty) List(ctx context.Context, prefix string) iter.Seq2[objstore.Info, error] {
	return func(yield func(objstore.Info, error) bool) {
		for info, err := range f.inner.List(ctx, prefix) {
			if f.next().fails {
				yield(objstore.Info{}, f.fail("list", prefix))
				return
			}
			if !yield(info, err) || err != nil {
				return
			}
		}
		if f.next().fails {
			yield(objstore.Info{}, f.fail("list", prefix))
		}
	}
}
