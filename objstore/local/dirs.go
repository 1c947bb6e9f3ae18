package local

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
)

// makeDirs opens the store's directory and makes dir below it, creating both if needed. Every
// directory made here is durable on return, because its parent is synced. The caller closes the
// root.
func (s *store) makeDirs(dir string) (*os.Root, error) {
	s.mkdir.Lock()
	defer s.mkdir.Unlock()
	root, err := os.OpenRoot(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		if err = s.makeRoot(s.dir); err == nil {
			root, err = os.OpenRoot(s.dir)
		}
	}
	if err != nil {
		return nil, err
	}
	if err := s.makeBelow(root, dir); err != nil {
		root.Close()
		return nil, err
	}
	return root, nil
}

// makeRoot makes the directory at an absolute path, parents first.
func (s *store) makeRoot(dir string) error {
	if _, err := os.Stat(dir); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	parent := filepath.Dir(dir)
	if err := s.makeRoot(parent); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o777); err != nil {
		if fi, statErr := os.Stat(dir); statErr == nil && fi.IsDir() {
			return nil // another process was first
		}
		return err
	}
	if s.opts.NoSync {
		return nil
	}
	f, err := os.Open(parent)
	if err != nil {
		return err
	}
	defer f.Close()
	return syncDirectory(f)
}

func (s *store) makeBelow(root *os.Root, dir string) error {
	if fi, err := root.Stat(dir); err == nil && fi.IsDir() {
		return nil
	}
	for end := 0; end < len(dir); end++ {
		if next := strings.IndexByte(dir[end:], '/'); next >= 0 {
			end += next
		} else {
			end = len(dir)
		}
		err := root.Mkdir(dir[:end], 0o777)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err == nil {
			err = s.syncDir(root, path.Dir(dir[:end]))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// syncDir makes the names in a directory durable.
func (s *store) syncDir(root *os.Root, dir string) error {
	if s.opts.NoSync {
		return nil
	}
	f, err := root.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return syncDirectory(f)
}

// syncDirectory makes the names in an open directory durable. Some file systems (FUSE,
// SMB) refuse to sync directories because they have nothing to sync.
func syncDirectory(dir *os.File) error {
	err := dir.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) {
		return nil
	}
	return err
}
