package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore"
)

// Status is the result of a check.
type Status string

// The results.
const (
	Passed  Status = "ok"
	Failed  Status = "failed"
	Skipped Status = "skipped"
)

// Check is one thing that was tried at a store.
type Check struct {
	Detail string `json:"detail"` // what was found or, if the check failed, what to set
	Name   string `json:"name"`   // `identity`, `list`, `read`, `write` or `clock`
	Status Status `json:"status"` // `ok`, `failed` or `skipped`
}

// StoreReport is what was found about a store.
type StoreReport struct {
	Address string
	objstore.Description
	Checks []Check
	// RoundTrip is the median time from a request to the header of its answer, of RoundTrips small
	// requests; both are 0 if there was none.
	RoundTrip  time.Duration
	RoundTrips int
	// Ahead is by how much this machine's clock is ahead of the server's. The server's has whole
	// seconds. It is valid if Clock is set.
	Ahead time.Duration
	Clock bool
	// Dataset reports that the store has a manifest that can be read.
	Dataset bool
}

// OK reports whether no check failed.
func (r *StoreReport) OK() bool {
	return !slices.ContainsFunc(r.Checks, func(c Check) bool { return c.Status == Failed })
}

const (
	// roundTrips is the number of requests that measure the round trip.
	roundTrips = 7
	// mostAhead is the difference of clocks from which on tokens and signatures are refused soon: S3
	// and Azure refuse requests after 15 minutes, and Google tokens whose time is some minutes off.
	mostAhead = time.Minute
)

// visit examines one store.
type visit struct {
	*StoreReport
	store objstore.Store
	some  string // an object that can be read, or ""

	mu      sync.Mutex
	answers []objstore.Answer
}

// Store examines how a store is reached and what it permits. With write it puts small objects with
// random names and deletes them. The error is the one of ctx.
func Store(ctx context.Context, s objstore.Store, write bool) (*StoreReport, error) {
	v := &visit{StoreReport: &StoreReport{Address: s.String()}, store: s}
	ctx = objstore.WithAnswers(ctx, func(a objstore.Answer) {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.answers = append(v.answers, a)
	})
	v.identify(ctx)
	if v.OK() {
		v.list(ctx)
		v.read(ctx)
	}
	if write && v.OK() {
		v.write(ctx)
	}
	if len(v.answers) > 0 {
		v.measure(ctx)
	}
	return v.StoreReport, ctx.Err()
}

// checked adds a check. If err is not nil, the check failed.
func (v *visit) checked(name string, status Status, detail string, err error) {
	if err != nil {
		status, detail = Failed, err.Error()
	}
	v.Checks = append(v.Checks, Check{detail, name, status})
}

func (v *visit) identify(ctx context.Context) {
	d, err := objstore.Describe(ctx, v.store)
	v.Description = d
	v.checked("identity", Passed, strings.TrimSuffix(d.Identity+", from "+d.From, ", from "), err)
}

func (v *visit) list(ctx context.Context) {
	for info, err := range v.store.List(ctx, "") {
		e, _ := errors.AsType[*objstore.Error](err)
		switch {
		case e != nil && e.Err == objstore.ErrNoList: // and not a missing right
			v.checked("list", Skipped, "this kind of store has no lists", nil)
		case err != nil:
			v.checked("list", Failed, "",
				fmt.Errorf("%w. Reading a data set needs no list; packing, prune and sources that are folders do", err))
		default:
			v.some = info.Name
			v.checked("list", Passed, "there are objects", nil)
		}
		return
	}
	v.checked("list", Passed, "there are no objects", nil)
}

// read reads the manifest, or one byte of another object.
func (v *visit) read(ctx context.Context) {
	size, err := v.touch(ctx, format.ManifestName)
	switch {
	case err == nil:
		v.some, v.Dataset = format.ManifestName, true
		v.checked("read", Passed, fmt.Sprintf("there is a data set, with a manifest of %d bytes", size), nil)
	case !errors.Is(err, fs.ErrNotExist):
		v.checked("read", Failed, "", err)
	case v.some == "":
		v.checked("read", Skipped, "there is no data set, and no other object that is known", nil)
	default:
		_, err = v.touch(ctx, v.some)
		v.checked("read", Passed, "there is no data set; other objects can be read", err)
	}
}

// touch reads the first byte of an object.
func (v *visit) touch(ctx context.Context, name string) (size int64, err error) {
	o, err := v.store.Open(ctx, name)
	if err != nil {
		return 0, err
	}
	defer o.Close()
	info, err := o.Info(ctx)
	if err == nil && info.Size > 0 {
		err = o.ReadAt(ctx, make([]byte, 1), 0)
	}
	return info.Size, err
}

// write publishes an object as a data set is published, checks that no other writer could replace
// it, and deletes it.
func (v *visit) write(ctx context.Context) {
	name := objstore.ProbeName()
	err := v.publish(ctx, name)
	if errors.Is(err, objstore.ErrReadOnly) {
		v.checked("write", Failed, "", err)
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	deleted := v.store.Delete(ctx, name)
	if err == nil && deleted != nil {
		err = fmt.Errorf("%w. Objects can be put, but not deleted: %s stays", deleted, name)
	}
	v.checked("write", Passed, "an object was put, a second one under its name was refused, and it was deleted", err)
}

func (v *visit) publish(ctx context.Context, name string) error {
	put := func(text string, cond objstore.Condition) (objstore.Info, error) {
		return objstore.Put(ctx, v.store, name, []byte(text), cond)
	}
	created, err := put("first", objstore.Condition{IfNoneMatch: true})
	if err != nil {
		return err
	}
	if check := objstore.TraitsOf(v.store).CheckWrites; check != nil {
		if err := check(ctx, true); err != nil {
			return err
		}
	}
	if _, err := put("second", objstore.Condition{IfNoneMatch: true}); !errors.Is(err, objstore.ErrExists) {
		return ignored(err, "that no object exists")
	}
	if _, err := put("replaced", objstore.Condition{IfMatch: created.ETag}); err != nil {
		return fmt.Errorf("an object cannot be replaced: %w", err)
	}
	if _, err := put("again", objstore.Condition{IfMatch: created.ETag}); !errors.Is(err, objstore.ErrChanged) {
		return ignored(err, "that an object was not replaced")
	}
	return nil
}

func ignored(err error, condition string) error {
	if err != nil {
		return err
	}
	return fmt.Errorf("the server ignores the condition %s, so that two writers could replace each other's data: write to another store", condition)
}

// measure measures the round trip and compares the clocks.
func (v *visit) measure(ctx context.Context) {
	v.mu.Lock()
	before := len(v.answers)
	v.mu.Unlock()
	for range roundTrips {
		if v.some != "" {
			if o, err := v.store.Open(ctx, v.some); err == nil {
				_ = o.ReadAt(ctx, make([]byte, 1), 0)
				o.Close()
			}
		} else if v.OK() {
			_, _ = v.store.Stat(ctx, format.ManifestName) // which is missing
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	var took, ahead []time.Duration
	for i, a := range v.answers {
		if i >= before {
			took = append(took, a.Came.Sub(a.Sent))
		}
		if !a.Date.IsZero() {
			ahead = append(ahead, a.Sent.Add(a.Came.Sub(a.Sent)/2).Sub(a.Date.Add(time.Second/2)))
		}
	}
	if v.RoundTrips = len(took); v.RoundTrips > 0 {
		v.RoundTrip = median(took)
	}
	if v.Clock = len(ahead) > 0; !v.Clock {
		v.checked("clock", Skipped, "no answer had a date", nil)
		return
	}
	v.Ahead = median(ahead)
	seconds, status, detail := v.Ahead.Round(time.Second).Abs(), Passed, "as the server's"
	switch {
	case seconds > time.Second && v.Ahead > 0:
		detail = fmt.Sprintf("%v ahead of the server's", seconds)
	case seconds > time.Second:
		detail = fmt.Sprintf("%v behind the server's", seconds)
	}
	if seconds > mostAhead {
		status = Failed
		detail += "; set this machine's clock: requests and tokens with a wrong time are refused"
	}
	v.checked("clock", status, detail, nil)
}

func median(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2]
}
