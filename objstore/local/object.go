package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/shardtool/shardtool/objstore"
)

// object reads one file through the descriptor that Open returned, even if its name is removed or
// replaced.
type object struct {
	store  *store
	file   *os.File
	info   objstore.Info
	closed atomic.Bool
}

// ReadAt is one pread if the kernel returns all bytes at once. It allocates only if it fails.
func (o *object) ReadAt(ctx context.Context, p []byte, off int64) error {
	if err := o.usable(ctx); err != nil {
		return o.fail(err)
	}
	if off < 0 || off > o.info.Size || int64(len(p)) > o.info.Size-off {
		return o.fail(fmt.Errorf("%d bytes at %d of %d: %w", len(p), off, o.info.Size, io.ErrUnexpectedEOF))
	}
	n, err := o.file.ReadAt(p, off)
	if err == nil {
		return nil
	}
	if !errors.Is(err, io.EOF) {
		return o.fail(err)
	}
	return o.fail(o.short(n, len(p), off))
}

// short explains a short read inside the object: another program truncated the file in place.
func (o *object) short(n, want int, off int64) error {
	if fi, err := o.file.Stat(); err == nil && (fi.Size() != o.info.Size || !fi.ModTime().Equal(o.info.ModTime)) {
		return fmt.Errorf("%w in place: %d bytes now, %d when it was opened", objstore.ErrChanged, fi.Size(),
			o.info.Size)
	}
	return fmt.Errorf("%d of %d bytes at %d: %w", n, want, off, io.ErrUnexpectedEOF)
}

// Info returns the description that Open found.
func (o *object) Info(ctx context.Context) (objstore.Info, error) {
	if err := o.usable(ctx); err != nil {
		return objstore.Info{}, o.fail(err)
	}
	return o.info, nil
}

// Is reports whether the file that the handle reads still is the one that info describes: whether
// its size, modification time and status change time are the same. The last one changes when a
// file is removed, too. Inode numbers do not count, because file systems on a network make them up
// anew.
func (o *object) Is(info objstore.Info) (bool, error) {
	if o.closed.Load() {
		return false, o.fail(fs.ErrClosed)
	}
	fi, err := o.file.Stat()
	if err != nil {
		return false, o.fail(err)
	}
	_, now, _ := strings.Cut(tagOf(fi), "-")
	_, then, _ := strings.Cut(info.ETag, "-")
	return now == then, nil
}

// Close closes the descriptor. A second Close does nothing.
func (o *object) Close() error {
	if o.closed.Swap(true) {
		return nil
	}
	return o.fail(o.file.Close())
}

func (o *object) usable(ctx context.Context) error {
	if o.closed.Load() {
		return fs.ErrClosed
	}
	return ctx.Err()
}

func (o *object) fail(err error) error { return o.store.fail("get", o.info.Name, err) }

func infoOf(name string, fi fs.FileInfo) objstore.Info {
	return objstore.Info{Name: name, Size: fi.Size(), ETag: tagOf(fi), ModTime: fi.ModTime()}
}

// tagOf returns the ETag of a file; the package documents it.
func tagOf(fi fs.FileInfo) string {
	inode, changed := inodeOf(fi)
	tag := make([]byte, 0, 64)
	tag = strconv.AppendUint(tag, inode, 16)
	for _, v := range [...]int64{fi.Size(), fi.ModTime().UnixNano(), changed} {
		tag = append(tag, '-')
		tag = strconv.AppendUint(tag, uint64(v), 16)
	}
	return string(tag)
}
