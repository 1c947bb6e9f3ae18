package objstore

import (
	"context"
	"errors"
	"iter"
	"time"
)

// Traits describes what a [Store] offers beyond the methods of that interface. The zero value
// describes a store whose reads cost no request and which has neither locks nor a cache. The traits
// of a store never change. Functions in them may be called from many goroutines.
type Traits struct {
	// Requests is the number of requests that the store keeps in flight; further ones wait inside
	// the store. It is 0 where reads cost no request. See Remote.
	Requests int
	// MostRequests is the largest number of requests that Reserve can allow.
	MostRequests int
	// Reserve allows n more requests in flight until release is called. The reservations of all
	// users add up, but never exceed MostRequests. Reserve does not wait. It is nil where the number
	// of requests is fixed.
	Reserve func(n int) (release func())

	// OpenAs is Open for an object whose content is identified by identity, such as its SHA-256 in
	// hex. Objects with equal identities share cached ranges, whatever their names and ETags. An
	// object whose ranges are all cached costs the source no request, so OpenAs does not notice that
	// it was deleted. The source is contacted when a range is missing or Info is called. An empty
	// identity means Open. OpenAs is nil where the store has no cache.
	//
	// The identity is not verified. Objects opened from a store with OpenAs have a method
	// Forget(ctx, off, n), which drops the cached range of exactly that offset and length. A caller
	// that finds the bytes damaged calls it and reads again. They also have ReadParts(ctx, p, off,
	// sizes...), which reads as ReadAt does and keeps each of the parts as a range of its own.
	OpenAs func(ctx context.Context, name, identity string) (Object, error)

	// Share locks the store for adding objects, together with other holders of the shared lock. It
	// waits while another process holds the lock exclusively. who describes the holder in the errors
	// of processes that it blocks. Locks are advisory, readers never take them, and a lock ends with
	// the process that holds it. Share is nil where the store has no locks.
	Share func(ctx context.Context, who string) (release func(), err error)
	// Exclude locks the store for one process, which may then delete objects that nothing refers to.
	// It does not wait: if the lock is held, the error wraps ErrBusy and names the holders. If the
	// store does not exist yet, the error wraps fs.ErrNotExist. It is nil where Share is nil.
	Exclude func(ctx context.Context, who string) (release func(), err error)

	// CheckWrites tests once, before anything is published, that the store keeps the conditions of
	// Create, and with inParts of the commits of large objects too. It deletes what it puts. It is nil
	// where a store of its kind always does.
	CheckWrites func(ctx context.Context, inParts bool) error

	// Versions reports that the store may keep the bytes of objects that were deleted or replaced, as
	// a bucket with versioning does.
	Versions bool
	// ListVersions lists the versions of the objects whose names begin with prefix, those that were
	// replaced or deleted too, name by name in the store's order, the newest of a name first, and
	// parts of uploads. Those that the store deletes itself later may come once more at the end. It
	// leaves out names that CheckName refuses. An error that wraps ErrKept says that there may be more
	// versions, which are not listed. It is nil where the store cannot list them.
	ListVersions func(ctx context.Context, prefix string) iter.Seq2[Version, error]
	// DeleteVersion deletes a version for good, or the mark of a deletion. A missing one is no error.
	// The error of one that a lock or a missing right protects wraps ErrKept. It is nil where
	// ListVersions is.
	DeleteVersion func(ctx context.Context, name, id string) error
	// DeleteVersions does so for several by few requests, and reports which are gone. DeleteVersion
	// says why another one is not. It is nil where the store has no such requests.
	DeleteVersions func(ctx context.Context, some []Version) (gone []bool, err error)

	// ListAll is List for every name that the store has, also for those that no method accepts: see
	// CheckName. It leaves out the store's own files only. The Size of a name that is no object, such
	// as a link that leads nowhere, is -1. It is nil where List has all names. See the function
	// ListAll.
	ListAll func(ctx context.Context, prefix string) iter.Seq2[Info, error]

	// Sweep removes the temporary files of uploads whose process died, if they were last written
	// more than olderThan ago, and returns their number. It is nil where uploads leave no such files.
	Sweep func(ctx context.Context, olderThan time.Duration) (removed int, err error)
}

// ErrKept reports an object or a version that the store refuses to delete, because something
// protects it.
var ErrKept = errors.New("the store keeps it")

// Version is a version of an object that a [Store] keeps. Its Name and ID identify it.
type Version struct {
	Info
	ID string
	// Current reports the newest version, which Open reads; unless it is a Mark, that of a deletion.
	Current, Mark bool
	// Until, if it is not zero, is how long the version stays, whatever is done: it was deleted, and
	// the store lets deletions be undone; or it is part of an upload that may still run.
	Until time.Time
}

// TraitsOf returns the traits of a store. A store declares them with a method Traits() Traits; a
// store without that method has the zero Traits. A store that wraps another must declare the traits
// that it preserves.
func TraitsOf(s Store) Traits {
	if s, ok := s.(interface{ Traits() Traits }); ok {
		return s.Traits()
	}
	return Traits{}
}

// ListAll lists every name that a store has. Callers whose users know the names, such as the files
// of a folder, learn by it what they would not get.
func ListAll(ctx context.Context, s Store, prefix string) iter.Seq2[Info, error] {
	if all := TraitsOf(s).ListAll; all != nil {
		return all(ctx, prefix)
	}
	return s.List(ctx, prefix)
}

// Remote reports whether each read of the store costs a request. Callers then make reads larger and
// keep several in flight.
func (t Traits) Remote() bool { return t.Requests > 0 }
