// Package export writes data sets in forms that other programs read: plain tar archives, with
// indexes for NVIDIA DALI or wids, Parquet files for Hugging Face datasets, token
// files for Megatron, and a description in Croissant.
//
//	train-000000.tar            the members of a shard as they were packed, and an end of archive
//	train-000000.idx            for DALI: the offset of each member's payload
//	wids.json                   for wids: the archives with their samples and MD5
//	data/train-000000.parquet   for Hugging Face datasets: the samples of a shard as rows
//	README.md                   for Hugging Face datasets: the card, with the features; also beside the
//	                            shards of a plain data set that is exported to its own folder
//	train.bin, train.idx        for Megatron: the tokens of all samples, a document each
//	croissant.json              in Croissant: the shards, with the SHA-256 of each
//	.export-FORM.json           written last: what was exported. Without it the export is not complete
//
// Removed samples are left out. Archives are written atomically, and their bytes depend only on the
// data set. To continue an
// interrupted export, run it again: it compares existing archives with the hashes of the data set
// and keeps them.
package export

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/hint"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/internal/input/kinds"
	"github.com/shardtool/shardtool/internal/sys/plain"
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
	// The others need no name in programs: Form("hf"). The archives of energon are for energon
	// prepare, which writes the indexes that its own version reads.
	energon   Form = "energon"
	hf        Form = "hf"
	megatron  Form = "megatron"
	croissant Form = "croissant"
)

// forms are all of them.
var forms = []Form{Tar, DALI, WIDS, energon, hf, megatron, croissant}

// rows reports whether the form is made of samples, with the fields of all layers, in place of the
// members of the shards.
func (f Form) rows() bool { return f == hf || f == megatron }

// WIDSName is the name of the index of wids.
const WIDSName = "wids.json"

// listName returns the name of the object that is written last. It depends on the form, so that
// several forms can share a place. Loaders that read all files of a folder skip names with a dot in
// front.
func listName(f Form) string { return ".export-" + string(f) + ".json" }

// Errors a caller branches on.
var (
	// ErrForm: the form is unknown, or not one for this data set.
	ErrForm = errors.New("form not possible")
	// ErrName: a sample has a name or a value that the form cannot hold.
	ErrName = errors.New("this form cannot hold it")
	// ErrExists: an object of this name exists and has other bytes.
	ErrExists = errors.New("other bytes are there")
)

// Options select the form and how to write it.
type Options struct {
	// Form is tar (the default), dali, wids, energon, hf, megatron or croissant.
	Form Form
	// Parallel is the number of shards written concurrently, 1 by default. Each is read with the
	// data set's Options.Workers and Options.Memory.
	Parallel int
	// View is the ID of the view that d was opened to have, see viewstore.Selection.LeftOut. The list
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

	md5, sha256 string
	found       bool
	cut         bool // it is not the blocks of its shard: it lacks removed samples, or is made of rows
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
	if !slices.Contains(forms, o.Form) {
		return nil, &hint.OptionError{Option: "as", Value: strconv.Quote(string(o.Form)),
			Err: fmt.Errorf("use %s; WebDataset reads tar, and hf is Parquet%w", strings.ReplaceAll(strings.Trim(fmt.Sprint(forms), "[]"),
				" ", ", "), plain.Silent(ErrForm))}
	}
	e := &exporter{d: d, to: to, o: o, name: "data", res: &Result{Format: listFormat, Form: o.Form,
		Digest: format.DigestString(d.Digest()), Samples: d.NumSamples() - uint64(len(d.Info().Removed))}}
	if o.View != "" {
		e.res.Digest += "#" + o.View
	}
	defer func() { e.tokens.close() }()
	for _, step := range []func(context.Context) error{e.names, e.shards, e.finish} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	return e.res, nil
}

type exporter struct {
	d   *reader.Dataset
	to  objstore.Store
	o   Options
	res *Result

	name    string   // that the data set was packed with
	columns []column // of hf
	tokens  *tokens  // of megatron

	mu   sync.Mutex
	prog Progress
}

// names gives each shard the name of its archive, and rejects names that two shards would share and
// fields that the form cannot name.
func (e *exporter) names(ctx context.Context) (err error) {
	if err := e.fits(); err != nil {
		return err
	}
	seen := map[string]string{}
	for i := range e.d.NumShards() {
		info, err := e.d.Shard(ctx, i)
		if err != nil {
			return err
		}
		name := strings.TrimSuffix(strings.TrimSuffix(info.Name, format.ZstdSuffix), format.TarSuffix)
		if other, twice := seen[name]; twice {
			return fmt.Errorf("shards %s and %s would both be %s: pack the data set again, with all shards in one format", other, info.Name, name)
		}
		seen[name] = info.Name
		if m := packed.FindStringSubmatch(name); m != nil && !info.Foreign {
			e.name = path.Base(m[1])
		}
		first, err := e.d.FirstSample(ctx, i)
		if err != nil {
			return err
		}
		gone := uint64(len(metadata.Within(e.d.Info().Removed, first, first+info.Samples)))
		if info.Foreign && gone > 0 && e.o.Form == DALI {
			return fmt.Errorf("%s: it is an archive of another tool, and samples of it were removed, so the places of its members are not known: "+
				"pack the data set into another one and export that%w", info.Name, plain.Silent(ErrForm))
		}
		a := Archive{Name: name + format.TarSuffix, Samples: info.Samples - gone, cut: gone > 0 || info.Layout != nil ||
			e.o.Form.rows()}
		switch e.o.Form {
		case hf:
			a.Name = "data/" + name + ".parquet"
		case croissant:
			a.Name = info.Name
		}
		e.res.Shards = append(e.res.Shards, a)
	}
	for _, f := range e.d.Fields() {
		if err := e.o.Form.field(f.Name); err != nil {
			return err
		}
	}
	switch e.o.Form {
	case hf:
		e.columns, err = columnsOf(ctx, e.d)
	case megatron:
		all := Archive{Name: e.name + ".bin", Samples: e.res.Samples, cut: true}
		e.res.Shards = []Archive{all}
		e.tokens, err = newTokens(ctx, e.d)
	}
	return err
}

// fits rejects data sets that the form cannot hold.
func (e *exporter) fits() error {
	layers := 0
	for range e.d.Layers() {
		layers++
	}
	switch {
	case !e.o.Form.rows() && (layers > 0 || len(e.d.Fields()) != len(e.d.Info().Fields)):
		return fmt.Errorf("%s has the members of the shards, without layers and with all fields: pack the data set with them into another one and export that%w", e.o.Form, plain.Silent(ErrForm))
	case e.o.Form == croissant && len(e.d.Info().Removed) > 0:
		return fmt.Errorf("%s describes whole shards, and these have %d samples that are left out: pack the data set into another one, or purge it, and export that%w",
			e.o.Form, len(e.d.Info().Removed), plain.Silent(ErrForm))
	}
	return nil
}

// packed takes the names of shards apart (SPEC 6.1): first is the name that the data set was packed
// with.
var packed = regexp.MustCompile(`^(.+?)(-v[0-9]{4,})?(-p[0-9]{4,})?-[0-9]{6,}(-x[0-9a-f]{16})?$`)

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
	idxName := strings.TrimSuffix(a.Name, format.TarSuffix) + ".idx"
	if e.o.Form == DALI || e.o.Form == WIDS || e.o.Form == energon { // before the archive: a name may be impossible
		ix, err := e.d.Index(ctx, i)
		if err != nil {
			return err
		}
		switch e.o.Form {
		case DALI:
			idx, err = daliIndex(ix)
		case energon:
			err = energonNames(ix)
		default:
			err = widsNames(ix)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", a.Name, err)
		}
	}
	if e.o.Form == croissant {
		return e.hash(ctx, a)
	}
	w := &archive{e: e, number: i, Archive: a}
	if err := w.write(ctx); err != nil {
		return err
	}
	if idx != nil {
		if err := e.put(ctx, idxName, idx); err != nil {
			return err
		}
	}
	e.report(1, 0)
	return nil
}

// finish writes the objects that cover all archives.
func (e *exporter) finish(ctx context.Context) (err error) {
	for _, a := range e.res.Shards {
		e.res.Bytes += a.Bytes
		if a.found {
			e.res.Found++
		}
	}
	switch e.o.Form {
	case Tar:
		err = e.cardOfTars(ctx)
	case WIDS:
		err = e.putJSON(ctx, WIDSName, e.wids())
	case hf:
		err = e.put(ctx, cardName, e.card())
	case megatron:
		_, err = e.object(ctx, e.name+".idx", e.tokens.idx)
	case croissant:
		err = e.croissant(ctx)
	}
	if err != nil {
		return err
	}
	return e.putJSON(ctx, listName(e.o.Form), e.res)
}

// table gives put the samples of a shard as a Parquet file.
func (e *exporter) table(ctx context.Context, shard int, put func([]byte) error) error {
	t, err := newTable(e.columns, put)
	if err != nil {
		return err
	}
	for s, err := range e.d.Samples(ctx, reader.Range{From: shard, To: shard + 1}) {
		if err == nil {
			err = t.add(s)
		}
		if err != nil {
			return err
		}
	}
	return t.close()
}

// splits are the names of splits on the Hub, by the names that data sets are packed with.
var splits = map[string]string{"test": "test", "val": "validation", "valid": "validation", "validation": "validation",
	"dev": "validation"}

// cardOfTars writes a card beside the shards of a plain data set, whose own tars are the archives:
// load_dataset of the folder then takes these, and not the objects that the format puts beside
// them. A README that is there stays.
func (e *exporter) cardOfTars(ctx context.Context) error {
	if _, err := e.to.Stat(ctx, format.ManifestName); errors.Is(err, fs.ErrNotExist) { // another place
		return nil
	} else if err != nil {
		return err
	}
	if _, err := e.to.Stat(ctx, cardName); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return e.put(ctx, cardName, []byte(e.cardHead("", format.TarSuffix)+"---\n"))
}

// cardName is the name of the card.
const cardName = "README.md"

// cardHead begins a card: it says which files the data set has, in a folder or, if shards are in
// folders of their own, at any depth below it.
func (e *exporter) cardHead(folder, suffix string) string {
	pattern := folder + "*" + suffix
	if slices.ContainsFunc(e.res.Shards,
		func(a Archive) bool { return strings.Contains(strings.TrimPrefix(a.Name, folder), "/") }) {
		pattern = folder + "**/*" + suffix
	}
	split := splits[e.name]
	if split == "" {
		split = "train"
	}
	return fmt.Sprintf("---\nconfigs:\n- config_name: default\n  data_files:\n  - split: %s\n    path: %q\n", split,
		pattern)
}

// card returns the card of a data set for the Hub: a README with the features in its head.
func (e *exporter) card() []byte {
	var out bytes.Buffer
	out.WriteString(e.cardHead("data/", ".parquet") + "dataset_info:\n  features:\n")
	for _, c := range e.columns {
		fmt.Fprintf(&out, "  - {\"name\":%s,%s}\n", kinds.Quoted(c.name), c.feature.AppendCard(nil)) // JSON is YAML
	}
	fmt.Fprintf(&out, "---\n\n# %s\n\n%d samples in %d files, exported by shardtool from the data set %s.\n",
		path.Base(strings.TrimSuffix(e.d.Store().String(), "/")), e.res.Samples, len(e.res.Shards), e.res.Digest)
	return out.Bytes()
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
