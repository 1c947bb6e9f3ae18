package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/input/fused"
	features "github.com/shardtool/shardtool/internal/input/kinds"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
)

// Source examines the samples that a pack of src would get, up to Options.Limit of them. Samples
// that cannot be read are findings; other errors of src end the examination.
func Source(ctx context.Context, src writer.Source, o Options) (*Report, error) {
	e := newExamination(o)
	e.lists = features.ParseFeatures(src.Meta()).Lists(nil)
	for !e.done() {
		s, err := src.Next(ctx)
		var se *writer.SampleError
		switch {
		case errors.Is(err, io.EOF):
			e.leftOut(src)
			return e.report(), nil
		case errors.As(err, &se):
			e.unread(se)
			continue
		case errors.Is(err, format.ErrCorrupt):
			e.found(Corrupt, err.Error())
			return e.report(), nil
		case err != nil:
			return nil, err
		}
		if err := e.sample(ctx, &s); err != nil {
			return nil, err
		}
		if o.Progress != nil {
			o.Progress(Progress{e.samples, e.bytes})
		}
	}
	return e.report(), nil
}

// unread records a sample that a source could not read.
func (e *examination) unread(err *writer.SampleError) {
	kind := Unreadable
	if err.LeaveOut || errors.Is(err, source.ErrNulls) {
		kind = Null
	}
	e.found(kind, err.Error())
	if !err.LeaveOut {
		e.samples++
	}
}

// leftOut records the files that a source left out, once it has ended.
func (e *examination) leftOut(src writer.Source) {
	if f, ok := src.(*source.Files); ok && f.Hidden > 0 {
		e.found(Hidden, fmt.Sprintf("%d files or folders", f.Hidden))
	}
}

// sample examines a sample with its payloads.
func (e *examination) sample(ctx context.Context, s *writer.Sample) error {
	if err := format.CheckKey(s.Key); err != nil {
		e.found(Name, s.Origin+": "+err.Error())
	}
	e.key(s.Key, s.Origin)
	var names []string
	var watch fused.Watch
	watch.Sample()
	for _, f := range s.Fields {
		names = append(names, f.Name)
		if e.FileNames && watch.File(s.Key, f.Name) {
			e.found(Fused, watch.Example())
		}
		data := f.Data
		e.bytes += max(f.Size, int64(len(f.Data)))
		if f.Payload != nil {
			if f.Size > mostPayload {
				continue
			}
			e.buf = slices.Grow(e.buf[:0], int(f.Size))[:f.Size]
			data = e.buf
			if err := f.Payload.ReadInto(ctx, data); err != nil {
				if ctx.Err() != nil {
					return err
				}
				e.found(Unreadable, s.Origin+": "+err.Error())
				continue
			}
		}
		e.payload(s.Origin, f.Name, data)
	}
	e.fields(s.Origin, names)
	return nil
}
