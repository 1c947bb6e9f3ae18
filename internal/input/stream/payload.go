package stream

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/shardtool/shardtool/internal/input/pinned"
	"github.com/shardtool/shardtool/objstore"
)

// Payload is a part of an object as a writer.Payload: Size bytes from Off on. The object must be the
// one that Info describes. Each read opens it, because there may be more objects than a process may
// have open files.
type Payload struct {
	Store     objstore.Store
	Name      string
	Info      objstore.Info
	Off, Size int64
	// Place is what the part is, for errors.
	Place string
}

func (p *Payload) fail(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	return fmt.Errorf("%s: %w", p.Place, err)
}

// ReadInto implements writer.Payload.
func (p *Payload) ReadInto(ctx context.Context, b []byte) error {
	obj, err := pinned.Reopen(ctx, p.Store, p.Name, p.Info)
	if err == nil {
		defer obj.Close()
		err = obj.ReadAt(ctx, b, p.Off)
	}
	return p.fail(err)
}

// Open implements writer.Payload. A remote object is read ahead.
func (p *Payload) Open(ctx context.Context) (io.ReadCloser, error) { return p.OpenAhead(ctx, true) }

// OpenAhead is Open, and reads a remote object ahead only if told so.
func (p *Payload) OpenAhead(ctx context.Context, ahead bool) (io.ReadCloser, error) {
	obj, err := pinned.Reopen(ctx, p.Store, p.Name, p.Info)
	if err != nil {
		return nil, p.fail(err)
	}
	in, err := Open(ctx, obj, p.Off+p.Size, ahead && objstore.TraitsOf(p.Store).Remote(), Plain, p.Off)
	if err != nil {
		obj.Close()
		return nil, p.fail(err)
	}
	return &payloadReader{in, p, obj}, nil
}

type payloadReader struct {
	in  *Stream
	of  *Payload
	obj objstore.Object
}

func (r *payloadReader) Read(p []byte) (int, error) {
	n, err := r.in.Read(p)
	return n, r.of.fail(err)
}

func (r *payloadReader) Close() error {
	r.in.Close()
	return r.obj.Close()
}
