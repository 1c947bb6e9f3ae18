// Package objstore is the storage a data set lives in: named, immutable objects of bytes, put whole or not at all.
//
// A [Store] is a flat name space with one prefix. Objects are written once by [Store.Create], whose commit is atomic and
// may be conditional, and read by ranges through an [Object]. The package knows nothing of shards: what the bytes mean is
// the business of package format.
//
//	local  a directory; Create writes a temporary file, syncs it, renames it, syncs the directory
//	mem    a map, for tests
//	s3     a bucket of S3, or of a server that speaks its protocol
//	http   objects behind a web server, to read
//	cache  a folder on local disk between a reader and any of them
//
// Package storetest holds the suite every Store passes, and a store that fails its k-th operation.
//
// # Names
//
// A name is a slash-separated relative path of at most 1,024 bytes: no empty, "." or ".." element, no backslash, no NUL.
// [CheckName] says so; every method refuses other names with [ErrName].
//
// # Errors
//
// A missing object is an error that wraps [io/fs.ErrNotExist]. A read past the end wraps [io.ErrUnexpectedEOF]: no method
// returns part of a range. A condition that does not hold at commit is [ErrExists] (IfNoneMatch) or [ErrChanged] (IfMatch);
// an object replaced while it is open is ErrChanged too. Every error names the object and the operation.
package objstore

import (
	"context"
	"errors"
	"io"
	"iter"
	"time"
)

// Errors a caller branches on. They are wrapped: use errors.Is.
var (
	// ErrExists: Create with IfNoneMatch found an object of that name.
	ErrExists = errors.New("object already exists")
	// ErrChanged: the object is not the one expected, by IfMatch or since it was opened.
	ErrChanged = errors.New("object was replaced by another writer")
	// ErrName: the name is not one a store accepts.
	ErrName = errors.New("invalid object name")
	// ErrBusy: others hold the lock that was to be taken alone.
	ErrBusy = errors.New("in use")
	// ErrReadOnly: the store takes no writes.
	ErrReadOnly = errors.New("store is read-only")
)

// Info describes one object.
type Info struct {
	// Name is relative to the store.
	Name string
	// Size is in bytes.
	Size int64
	// ETag identifies this version of the object within its store: two objects put one after the other under one name
	// have different tags. It says nothing of the content.
	ETag string
	// ModTime is when the object was put, by the store's clock.
	ModTime time.Time
}

// Condition restricts a commit. The zero value puts unconditionally.
type Condition struct {
	// IfNoneMatch commits only when no object of that name exists; otherwise ErrExists.
	IfNoneMatch bool
	// IfMatch, when not empty, commits only when the object's ETag is this one; otherwise ErrChanged (also when there is
	// no such object).
	IfMatch string
}

// Store is a flat space of immutable objects. All methods may be called from many goroutines.
type Store interface {
	// Open returns a handle to read an object. The handle stays on the version that was there at Open or at the first
	// read: it returns that version's bytes or ErrChanged, never a mixture.
	Open(ctx context.Context, name string) (Object, error)
	// Stat describes an object without reading it.
	Stat(ctx context.Context, name string) (Info, error)
	// Create begins a new object. Nothing is visible under the name until Commit succeeds.
	Create(ctx context.Context, name string, cond Condition) (Upload, error)
	// List yields the objects whose names begin with prefix, in ascending byte order of names. Temporary files of
	// unfinished uploads are not listed.
	List(ctx context.Context, prefix string) iter.Seq2[Info, error]
	// Delete removes an object. Removing one that is not there is no error.
	Delete(ctx context.Context, name string) error
	// String is the store's address as a user would write it, without secrets.
	String() string
}

// Object reads one version of one object. ReadAt may be called from many goroutines; Close ends all of them.
type Object interface {
	// ReadAt fills p with the bytes from off on, or fails: a range that ends past the object wraps io.ErrUnexpectedEOF,
	// and p then holds nothing of use.
	ReadAt(ctx context.Context, p []byte, off int64) error
	// Info describes the version this handle reads.
	Info(ctx context.Context) (Info, error)
	// Close frees the handle. Reading afterwards is an error.
	Close() error
}

// Upload is an object being written: bytes in order, then Commit or Abort. It is for one goroutine.
type Upload interface {
	io.Writer
	// Commit makes the object visible, whole and durable, if the condition of Create holds at that moment. On error
	// nothing is visible under the name that was not there before, and the upload is over: Abort is then a no-op.
	Commit(ctx context.Context) (Info, error)
	// Abort drops the upload and what it stored. It is safe after Commit, where it does nothing, and works when the
	// context of Create has ended.
	Abort() error
}
