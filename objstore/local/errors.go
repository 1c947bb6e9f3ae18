package local

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
)

// readError converts the errors for paths that cannot hold an object to the errors of a flat store,
// and explains the errors of package os.
func readError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("a file is where the directory should be: %w", fs.ErrNotExist)
	case escapes(err):
		return errors.New("a symbolic link on its path leads out of the store, which is not followed; " +
			"open the directory it leads to, or copy the file in")
	}
	return err
}

// writeError explains what prevents the creation of a file.
func writeError(err error) error {
	switch {
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EEXIST):
		return fmt.Errorf("an object is where a directory is needed: %w", err)
	case escapes(err):
		return errors.New("a symbolic link on its path leads out of the store, which is not followed; " +
			"write to the directory it leads to")
	}
	return err
}

// escapes recognises os.errPathEscapes, which is not exported. A test checks the text against the
// Go release in use.
func escapes(err error) bool { return strings.HasSuffix(err.Error(), "path escapes from parent") }

// noLocks adds advice for file systems without locks.
func noLocks(err error) error {
	if errors.Is(err, errors.ErrUnsupported) {
		return fmt.Errorf("this file system has no locks, which a safe put needs "+
			"(Lustre: mount with -o flock; NFS: without nolock); write elsewhere: %w", err)
	}
	return err
}

// ignoreMissing returns nil for the error of a missing file.
func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
