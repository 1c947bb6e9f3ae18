// Package export writes data sets in forms that other programs read: plain tar archives, with
// indexes for NVIDIA DALI or wids.
//
//	train-000000.tar     the members of a shard as they were packed, and an end of archive
//	train-000000.idx     for DALI: the offset of each member's payload
//	wids.json            for wids: the archives with their samples and MD5
//	export-FORM.json     written last: what was exported. Without it the export is not complete
//
// Removed samples are left out. Archives are written atomically, and their bytes depend only on the
// data set. To continue an
// interrupted export, run it again: it compares existing archives with the hashes of the data set
// and keeps them.
package export

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/sections"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/reader"
)

// Form is the form of an export.
type Form string

// The forms.
const (
	// Tar writes only archives, for WebDataset, Hugging Face datasets and all else that reads tar.
	Tar Form = "tar"
	// DALI adds an .idx file to each archive, in the format of DALI's wds2idx.
	DALI Form = "dali"
	// WIDS adds wids.json.
	WIDS Form = "wids"
)

// WIDSName is the name of the index of wids.
const WIDSName = "wids.json"

// listName returns the name of the object that is written last. It depends on the form, so that
// several forms can share a place.
func listName(f Form) string { return "export-" + string(f) + ".json" }

// Errors a caller branches on.
var (
	// ErrForm: the form is unknown.
	ErrForm = errors.New("unknown form")
	// ErrName: a sample has a name that the form cannot hold.
	ErrName = errors.New("name that this form cannot hold")
	// ErrExists: an object of this name exists and has other bytes.
	ErrExists = errors.New("other bytes are there")
)

// Options select the form and how to write it.
type Options struct {
	// Form defaults to Tar.
	Form Form
	// Parallel is the number of shards written concurrently, 1 by default. Each is read with the
	// data set's Options.Workers and Options.Memory.
	Parallel int
	// View is the ID of the view that d was opened to have, see views.Selection.LeftOut. The list
	// has it after the digest, as checkpoints do.
	View string
	// Progress, when not nil, is called with the archives and bytes written or found so far, from
	// one goroutine at a time.
	Progress func(Progress)
}

// Progress counts archives and their bytes.
type Progress struct{ Shards, Bytes int64 }

// Archive is one archive of an export.
type Archive struct {
	Name    string `json:"name"`
	Samples uint64 `json:"samples"`
	Bytes   int64  `json:"bytes"`

	md5   string
	found bool
	cut   bool // it is not the blocks of its shard: it lacks removed samples, or is made of rows
}

// Result is what was exported.
type Result struct {
	Format  string    `json:"format"`
	Form    Form      `json:"as"`
	Digest  string    `json:"digest"`
	Samples uint64    `json:"samples"`
	Bytes   int64     `json:"bytes"`
	Shards  []Archive `json:"shards"`
	// Found is the number of archives that an earlier run wrote.
	Found int `json:"-"`
}

// listFormat is the version of the list.
const listFormat = "shardtool-export/1"

// Run exports a data set to a store, each shard as an archive of the same name. It checks the names
// of fields and of archives before it writes anything.
//
// Errors wrap ErrForm, ErrName, ErrExists, or errors of package reader, such as format.ErrCorrupt
// with shard, block and offset.
func Run(ctx context.Context, d *reader.Dataset, to objstore.Store, o Options) (*Result, error) {
	if o.Form == "" {
		o.Form = Tar
	}
	if o.Form != Tar && o.Form != DALI && o.Form != WIDS {
		return nil, fmt.Errorf("export: %w %q: there are %s, %s and %s", ErrForm, o.Form, Tar, DALI, WIDS)
	}
	e := &exporter{d: d, to: to, o: o, res: &Result{Format: listFormat, Form: o.Form, Digest: format.DigestString(d.Digest()), Samples: d.NumSamples() - uint64(len(d.Info().Removed))}}
	if o.View != "" {
		e.res.Digest += "#" + o.View
	}
	for _, step := range []func(context.Context) error{e.names, e.shards, e.finish} {
		if err := step(ctx); err != nil {
			return nil, fmt.Errorf("export: %w", err)
		}
	}
	return e.res, nil
}

type exporter struct {
	d   *reader.Dataset
	to  objstore.Store
	o   Options
	res *Result

	mu   sync.Mutex
	prog Progress
}

// names gives each shard the name of its archive, and rejects names that two shards would share and
// fields that the form cannot name.
func (e *exporter) names(ctx context.Context) error {
	seen := map[string]string{}
	for i := range e.d.NumShards() {
		info, err := e.d.Shard(ctx, i)
		if err != nil {
			return err
		}
		name := strings.TrimSuffix(strings.TrimSuffix(info.Name, format.ZstdSuffix), format.TarSuffix) + format.TarSuffix
		if other, twice := seen[name]; twice {
			return fmt.Errorf("shards %s and %s would both be %s: pack the data set again, with all shards in one format", other, info.Name, name)
		}
		seen[name] = info.Name
		first, err := e.d.FirstSample(ctx, i)
		if err != nil {
			return err
		}
		gone := uint64(len(sections.Within(e.d.Info().Removed, first, first+info.Samples)))
		if gone > 0 && info.Foreign && e.o.Form == DALI {
			return fmt.Errorf("%s: %w: samples were removed from this archive of another tool, and %s would need an archive without them: "+
				"pack the data set into another one and export that", info.Name, ErrForm, DALI)
		}
		e.res.Shards = append(e.res.Shards, Archive{Name: name, Samples: info.Samples - gone, cut: gone > 0 || info.Layout != nil})
	}
	for _, f := range e.d.Info().Fields {
		if err := e.o.Form.field(f.Name); err != nil {
			return err
		}
	}
	return nil
}

// shards writes all archives.
func (e *exporter) shards(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(max(e.o.Parallel, 1))
	for i := range e.res.Shards {
		g.Go(func() error {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return e.shard(ctx, i)
		})
	}
	return g.Wait()
}

// shard writes one archive, and its index if the form has one.
func (e *exporter) shard(ctx context.Context, i int) error {
	a := &e.res.Shards[i]
	var idx []byte
	if e.o.Form != Tar { // before the archive: a name may be impossible
		ix, err := e.d.Index(ctx, i)
		if err != nil {
			return err
		}
		if e.o.Form == DALI {
			idx, err = daliIndex(ix)
		} else {
			err = widsNames(ix)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", a.Name, err)
		}
	}
	w := &archive{e: e, number: i, Archive: a}
	if err := w.write(ctx); err != nil {
		return err
	}
	if idx != nil {
		if err := e.put(ctx, strings.TrimSuffix(a.Name, format.TarSuffix)+".idx", idx); err != nil {
			return err
		}
	}
	e.report(1, 0)
	return nil
}

// finish writes the objects that cover all archives.
func (e *exporter) finish(ctx context.Context) error {
	for _, a := range e.res.Shards {
		e.res.Bytes += a.Bytes
		if a.found {
			e.res.Found++
		}
	}
	if e.o.Form == WIDS {
		if err := e.putJSON(ctx, WIDSName, e.wids()); err != nil {
			return err
		}
	}
	return e.putJSON(ctx, listName(e.o.Form), e.res)
}

// wids returns the index that wids reads.
func (e *exporter) wids() any {
	type shard struct {
		URL      string `json:"url"`
		MD5      string `json:"md5sum"`
		Samples  uint64 `json:"nsamples"`
		FileSize int64  `json:"filesize"`
	}
	list := []shard{}
	for _, a := range e.res.Shards {
		list = append(list, shard{a.Name, a.md5, a.Samples, a.Bytes})
	}
	return struct {
		Kind    string  `json:"__kind__"`
		Version int     `json:"wids_version"`
		Name    string  `json:"name"`
		Shards  []shard `json:"shardlist"`
	}{"wids-shard-index-v1", 1, path.Base(strings.TrimSuffix(e.d.Store().String(), "/")), list}
}

func (e *exporter) putJSON(ctx context.Context, name string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return e.put(ctx, name, append(text, '\n'))
}

// put writes a small object, or finds it with the same bytes.
func (e *exporter) put(ctx context.Context, name string, data []byte) error {
	_, err := objstore.Put(ctx, e.to, name, data, objstore.Condition{IfNoneMatch: true})
	if !errors.Is(err, objstore.ErrExists) {
		return err
	}
	there, _, err := objstore.ReadAll(ctx, e.to, name, int64(len(data)))
	if err == nil && string(there) == string(data) {
		return nil
	}
	if err != nil && !errors.Is(err, objstore.ErrTooLarge) {
		return err
	}
	return e.other(name)
}

// other returns the error of an existing object with other bytes.
func (e *exporter) other(name string) error {
	return fmt.Errorf("%s in %v: %w: it is of another data set or form, or was changed: export to an empty place, or remove it", name, e.to, ErrExists)
}

func (e *exporter) report(shards, bytes int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.prog.Shards += shards
	e.prog.Bytes += bytes
	if e.o.Progress != nil {
		e.o.Progress(e.prog)
	}
}
