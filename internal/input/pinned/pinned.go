// Package pinned reads objects that must stay what they were when a program first saw them. A
// source that is overwritten, cut or removed while it is read would otherwise be delivered as a
// mixture of two contents.
package pinned

import (
	"context"
	"errors"
	"fmt"

	"github.com/shardtool/shardtool/objstore"
)

// Open opens an object for the first time and returns what it is.
func Open(ctx context.Context, s objstore.Store, name string) (objstore.Object, objstore.Info, error) {
	obj, err := s.Open(ctx, name)
	if err != nil {
		return nil, objstore.Info{}, err
	}
	info, err := obj.Info(ctx)
	if err != nil {
		obj.Close()
		return nil, objstore.Info{}, err
	}
	return Pin(s, obj, info), info, nil
}

// Reopen opens an object that must be the one that want describes. It fails with
// objstore.ErrChanged if it is another one; a store on a network finds that in the first read,
// which costs no request of its own.
func Reopen(ctx context.Context, s objstore.Store, name string, want objstore.Info) (objstore.Object, error) {
	obj, err := s.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	p := Pin(s, obj, want)
	if of, ok := p.(*object); ok && !of.remote {
		err = of.check(ctx)
	}
	if err != nil {
		obj.Close()
		return nil, err
	}
	return p, nil
}

// Pin makes each read of obj, an object of s, fail with objstore.ErrChanged unless the object is
// the one that want describes after its bytes were read, and so was before.
func Pin(s objstore.Store, obj objstore.Object, want objstore.Info) objstore.Object {
	if _, ok := obj.(interface {
		ReadSome(ctx context.Context, p []byte, off int64) (int, error)
	}); ok {
		return obj // a stream, which nothing can overwrite
	}
	return &object{Object: obj, store: s, want: want, remote: objstore.TraitsOf(s).Remote()}
}

type object struct {
	objstore.Object
	store  objstore.Store
	want   objstore.Info
	remote bool
}

// ReadAt implements objstore.Object.
func (o *object) ReadAt(ctx context.Context, p []byte, off int64) error {
	err := o.Object.ReadAt(ctx, p, off)
	if err != nil && ctx.Err() != nil {
		return err
	}
	// A file that was cut fails as one that is damaged, unless the reason is said.
	if other := o.check(ctx); other != nil && (err == nil || errors.Is(other, objstore.ErrChanged)) {
		return other
	}
	return err
}

// check compares the object with the one that is wanted. An object of a store on a network is
// pinned by its first read, after which its description costs no request. A file of this machine is
// asked for again.
func (o *object) check(ctx context.Context) error {
	if file, ok := o.Object.(interface {
		Is(objstore.Info) (bool, error)
	}); ok {
		is, err := file.Is(o.want)
		return changed(is, err)
	}
	now, err := o.Info(ctx)
	return changed(now.Size == o.want.Size && now.ETag == o.want.ETag &&
		(now.ETag != "" || now.ModTime.Equal(o.want.ModTime)), err)
}

func changed(is bool, err error) error {
	if err == nil && !is {
		err = fmt.Errorf("%w since packing began: pack again when nothing writes to it", objstore.ErrChanged)
	}
	return err
}

// Sum is the checksum that objstore.SumOf asks for.
func (o *object) Sum(ctx context.Context) (*objstore.Sum, error) {
	return objstore.SumOf(ctx, o.Object)
}

// Expect passes on what will be read soon.
func (o *object) Expect(off, n int64) {
	if e, ok := o.Object.(interface{ Expect(off, n int64) }); ok {
		e.Expect(off, n)
	}
}
