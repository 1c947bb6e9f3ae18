package objstore

import (
	"errors"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// ErrTooLarge: the object is larger than the caller allows.
var ErrTooLarge = errors.New("object is larger than allowed")

// ErrNoList: the store cannot list its objects; those whose names are known can be read all the same.
var ErrNoList = errors.New("store cannot list its objects")

// ErrNoRanges: the server answers a request for a part of an object with something else. No object
// can be read by ranges then, whatever its bytes.
var ErrNoRanges = errors.New("the server ignores Range")

// Error is what every store returns: which operation failed on which object of which store, and why.
type Error struct {
	// Op is what was asked: get, stat, put, list or delete.
	Op string
	// Store is the store's address, as its String method gives it.
	Store string
	// Name is the object, or the prefix of a list; it may be empty then.
	Name string
	// Err is the cause. It is never nil.
	Err error
}

// NewError builds the Error of one failed operation. It returns nil for a nil cause and leaves a cause that wraps
// an [*Error] already as it is. The path that package os puts into its errors is dropped, since Store and Name say it
// better, and a read-only file system is [ErrReadOnly] too.
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

// Error gives one line: operation, object, store, cause, and what to do about it where that is known.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("objstore: ")
	b.WriteString(e.Op)
	if e.Name != "" {
		b.WriteByte(' ')
		b.WriteString(quoted(e.Name))
	}
	b.WriteString(" in ")
	b.WriteString(quoted(e.Store))
	b.WriteString(": ")
	b.WriteString(e.Err.Error())
	if hint := advice(e.Err); hint != "" {
		b.WriteString("; ")
		b.WriteString(hint)
	}
	return b.String()
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// Exhausted reports whether an error means that the process or the machine has run out of
// descriptors or memory. It says nothing about the object.
func Exhausted(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOMEM) || errors.Is(err, syscall.ENOBUFS)
}

// readOnlyError makes EROFS answer to ErrReadOnly without saying the same thing twice.
type readOnlyError struct{ error }

func (e *readOnlyError) Is(target error) bool { return target == ErrReadOnly }
func (e *readOnlyError) Unwrap() error        { return e.error }

// withoutPath takes off the wrappers of package os, which repeat the call and the path.
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

func advice(err error) string {
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

// quoted leaves plain text as it is, and quotes what would blur or break the line: names may hold spaces and newlines.
func quoted(s string) string {
	q := strconv.Quote(s)
	if len(q) == len(s)+2 && q[1:len(q)-1] == s && !strings.ContainsAny(s, " ") {
		return s
	}
	return q
}
