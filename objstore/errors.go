package objstore

import (
	"errors"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// ErrTooLarge reports an object that is larger than the caller allows.
var ErrTooLarge = errors.New("object is larger than allowed")

// ErrNoList reports a store that cannot list its objects, or does not let these credentials list
// them. Objects whose names are known can still be read.
var ErrNoList = errors.New("store cannot list its objects")

// ErrArchived reports an object in an archive, whose bytes the store returns only after the object
// was restored.
var ErrArchived = errors.New("the object is archived")

// ErrNoRanges reports a server that does not answer a range request with that range. None of its
// objects can be read.
var ErrNoRanges = errors.New("the server ignores Range")

// Error is the error of a store: the operation, the object, the store and the cause.
type Error struct {
	// Op is the operation: get, stat, put, list, delete, lock, sweep or open.
	Op string
	// Store is the store's address, as returned by its String method.
	Store string
	// Name is the object's name, or the prefix of a list. It is empty where no object is concerned.
	Name string
	// Err is the cause, never nil.
	Err error
}

// NewError returns the Error of a failed operation, or nil if cause is nil. It returns a cause that
// wraps an [*Error] unchanged. It removes the path that package os adds, which store and name give
// already. The error of a read-only file system also matches [ErrReadOnly].
func NewError(op, store, name string, cause error) error {
	if cause == nil {
		return nil
	}
	if _, ok := errors.AsType[*Error](cause); ok {
		return cause
	}
	cause = withoutPath(cause)
	if errors.Is(cause, syscall.EROFS) && !errors.Is(cause, ErrReadOnly) {
		cause = &readOnlyError{cause}
	}
	return &Error{Op: op, Store: store, Name: name, Err: cause}
}

// Error returns one line: operation, object, store, cause, and advice where there is some.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Op)
	if e.Name != "" {
		b.WriteByte(' ')
		b.WriteString(quoted(e.Name))
	}
	b.WriteString(" in ")
	b.WriteString(quoted(e.Store))
	b.WriteString(": ")
	b.WriteString(e.Err.Error())
	if hint := Advice(e.Err); hint != "" {
		b.WriteString("; ")
		b.WriteString(hint)
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Exhausted reports whether err means that the process or the machine ran out of file descriptors
// or memory, and so not of the object.
func Exhausted(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOMEM) ||
		errors.Is(err, syscall.ENOBUFS)
}

// readOnlyError makes EROFS match ErrReadOnly without repeating it in the text.
type readOnlyError struct{ error }

func (e *readOnlyError) Is(target error) bool { return target == ErrReadOnly }
func (e *readOnlyError) Unwrap() error        { return e.error }

// withoutPath removes the wrappers of package os, which repeat the operation and the path.
func withoutPath(err error) error {
	switch e := err.(type) {
	case *fs.PathError:
		return e.Err
	case *os.LinkError:
		return e.Err
	case *os.SyscallError:
		return e.Err
	}
	return err
}

// Advice returns what to do about an error of the operating system, or "".
func Advice(err error) string {
	switch {
	case errors.Is(err, syscall.ENOSPC):
		return "free some space or write elsewhere, then run again"
	case errors.Is(err, syscall.EDQUOT):
		return "ask for more quota or write elsewhere, then run again"
	case errors.Is(err, syscall.EFBIG):
		return "raise the limit on file size (ulimit -f) or make smaller objects"
	case errors.Is(err, syscall.EROFS):
		return "mount it read-write or write elsewhere"
	case errors.Is(err, syscall.EMFILE):
		return "raise the limit on open files (ulimit -n)"
	case errors.Is(err, syscall.ENFILE):
		return "the whole machine has too many files open: end what holds them, or raise fs.file-max"
	case errors.Is(err, syscall.ENOMEM), errors.Is(err, syscall.ENOBUFS):
		return "the machine or its container is out of memory: free some, or give it more"
	case errors.Is(err, fs.ErrPermission):
		return "check the owner and the mode of the file and its directory"
	}
	return ""
}

// quoted returns plain text unchanged and quotes text that would blur or break the line: names may
// contain spaces and newlines.
func quoted(s string) string {
	q := strconv.Quote(s)
	if len(q) == len(s)+2 && q[1:len(q)-1] == s && !strings.ContainsAny(s, " ") {
		return s
	}
	return q
}
