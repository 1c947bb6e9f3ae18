// Package objstore stores data sets as named, immutable objects, each written completely or not at
// all.
//
// A [Store] is a flat name space under one address. [Store.Create] writes an object once; its
// commit is atomic and may be conditional. An [Object] reads ranges of it. The package does not
// know what the bytes mean; see package format. Stores are:
//
//	local  a directory; a commit syncs a temporary file, renames it and syncs the directory
//	mem    a map, for tests
//	s3     a bucket of S3 or of a compatible server
//	gs     a bucket of Google Cloud Storage
//	az     a container of Azure Blob Storage
//	http   files of a web server, read only
//	hub    a data set on the Hugging Face Hub, read only
//	cache  a local folder in front of one of the others
//
// Package address opens them, and is the only way to open gs, az and hub.
//
// A store may offer more than these methods, such as locks: see [Traits]. Package storetest holds
// the test suite that every Store passes, and a Store that fails its k-th operation.
//
// # Names
//
// A name is a slash-separated relative path of at most 1,024 bytes. It has no empty, "." or ".."
// element, no backslash and no NUL; see [CheckName]. Every method refuses other names with
// [ErrName].
//
// # Errors
//
// Every error of a Store is an [*Error], which names the operation and the object. The error for a
// missing object wraps [io/fs.ErrNotExist]. No method returns part of a range: a read past the end
// wraps [io.ErrUnexpectedEOF]. A commit whose condition does not hold fails with [ErrExists]
// (IfNoneMatch) or [ErrChanged] (IfMatch). ErrChanged also reports an object that was replaced
// while it was open.
package objstore

import (
	"context"
	"errors"
	"io"
	"iter"
	"time"
)

// Errors that callers test for with errors.Is.
var (
	// ErrExists reports that Create with IfNoneMatch found an object of that name.
	ErrExists = errors.New("object already exists")
	// ErrChanged reports that the object is not the version expected: the one of IfMatch, or the
	// one that was opened.
	ErrChanged = errors.New("object was replaced by another writer")
	// ErrName reports a name that the store does not accept.
	ErrName = errors.New("invalid object name")
	// ErrBusy reports that other processes hold a lock that was requested exclusively.
	ErrBusy = errors.New("in use")
	// ErrReadOnly reports that the store cannot be written.
	ErrReadOnly = errors.New("store is read-only")
)

// Info describes one object.
type Info struct {
	// Name is relative to the store.
	Name string
	// Size is in bytes.
	Size int64
	// ETag identifies this version of the object within its store: two objects put one after the
	// other under one name have different ETags. It need not depend on the content.
	ETag string
	// ModTime is the time of the put, by the store's clock.
	ModTime time.Time
}

// Condition makes a commit conditional. The zero value commits unconditionally.
type Condition struct {
	// IfNoneMatch requires that no object of that name exists. Otherwise Commit returns ErrExists.
	IfNoneMatch bool
	// IfMatch, if not empty, requires that the object exists and has this ETag. Otherwise Commit
	// returns ErrChanged.
	IfMatch string
}

// Store is a flat name space of immutable objects. Its methods may be called from many goroutines.
type Store interface {
	// Open returns a handle to read an object. The handle is pinned to one version, the one at Open
	// or at the first read. It returns the bytes of that version or ErrChanged, never a mixture.
	Open(ctx context.Context, name string) (Object, error)
	// Stat describes an object without reading it.
	Stat(ctx context.Context, name string) (Info, error)
	// Create begins a new object. It is invisible until Commit succeeds.
	Create(ctx context.Context, name string, cond Condition) (Upload, error)
	// List yields the objects whose names begin with prefix, in ascending byte order of names. It
	// leaves out temporary files of unfinished uploads.
	List(ctx context.Context, prefix string) iter.Seq2[Info, error]
	// Delete removes an object. Deleting a missing object is not an error.
	Delete(ctx context.Context, name string) error
	// String returns the store's address as a user would write it, without secrets.
	String() string
}

// Object reads one version of one object. ReadAt may be called from many goroutines. Close makes
// current and later reads fail. An Object that gains from knowing what will be read soon has a
// method Expect(off, n int64), which does not wait for the bytes.
type Object interface {
	// ReadAt fills p with the bytes from off on. A range that ends past the object fails with an
	// error that wraps io.ErrUnexpectedEOF. After an error the contents of p are undefined.
	ReadAt(ctx context.Context, p []byte, off int64) error
	// Info describes the version that the handle reads.
	Info(ctx context.Context) (Info, error)
	// Close releases the handle.
	Close() error
}

// Upload writes one object: the bytes in order, then Commit or Abort. Only one goroutine may use
// it.
type Upload interface {
	io.Writer
	// Commit makes the object visible, complete and durable, if the condition of Create holds at
	// that moment. If it fails, the name refers to what it referred to before. Either way the
	// upload has ended, and Abort does nothing.
	Commit(ctx context.Context) (Info, error)
	// Abort discards the upload and its bytes. It works after the context of Create has ended.
	// After Commit it does nothing.
	Abort() error
}
