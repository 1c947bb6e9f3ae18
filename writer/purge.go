package writer

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/internal/format/names"
	"github.com/shardtool/shardtool/internal/format/samplekey"
	"github.com/shardtool/shardtool/objstore"
)

// ErrForeign reports archives of another tool, which no program of this project rewrites.
var ErrForeign = errors.New("archives of another tool are not rewritten")

// PurgeOptions are the options of Purge.
type PurgeOptions struct {
	// Generations also deletes the generations that still hold the bytes.
	Generations bool
	// Versions also deletes, for good, what the store keeps of objects of the data set and its layers
	// that were replaced or deleted. The error of a store that does not list versions wraps
	// errors.ErrUnsupported.
	Versions bool
	// ClearAttributes names integer attributes that removed samples lose, those that were purged
	// before too. Without it they lose labels and numbers, and keep integers, because lengths decide
	// how other samples are packed into units. A name that no attribute has is an error.
	ClearAttributes []string
	// Layers are purged after the data set, which is their base: they get its removed samples, and
	// lose their bytes. A layer that does not fit the data set is named in the report and left
	// alone.
	Layers []objstore.Store
	// DryRun changes nothing.
	DryRun bool
	// Memory bounds the bytes of a block that is rewritten. The default is 1 GiB.
	Memory int64
	// Log takes warnings; nil discards them. Progress is called after each shard.
	Log      *slog.Logger
	Progress func(done, shards int)
}

// PurgeReport is the receipt of a purge.
type PurgeReport struct {
	// Samples whose bytes are gone. They are gone from the current generation, by this purge.
	Samples []PurgedSample `json:"samples"`
	// Shards that were rewritten.
	Shards []PurgedShard `json:"shards"`
	// The generation afterwards. Digest is what it was.
	Generation uint64 `json:"generation"`
	Tables     string `json:"tables"`
	Digest     string `json:"digest"`
	// Holding are earlier generations, and shards that none names, that still hold the bytes. So do
	// archives of another tool with samples of the same keys. Generations have the names of their
	// tables.
	Holding []string `json:"generations_holding"`
	// Searched are generations where the purged keys are not. They have other shards: the same content
	// under another key is not found there.
	Searched []string `json:"generations_searched"`
	// Samples purged earlier whose keys are nowhere: the generations searched may hold them.
	Unknown int `json:"unknown_keys"`
	// NotSearched is what may hold the bytes and was not searched. These are objects of packs that
	// have not published, because they were killed or still run; shards of layers that have not
	// published and cannot be told apart; folders below layers/ that are none of PurgeOptions.Layers;
	// and programs that write into the same place now, as far as the store knows.
	NotSearched []string `json:"not_searched"`
	// Versions reports that the store keeps, or may keep, versions that have the bytes. They are of
	// what was deleted or replaced.
	Versions bool `json:"versions_may_remain"`
	// Versions deleted, and left. They are of the data set and its layers: those that
	// PurgeOptions.Versions deleted, or would delete; those that are there, and objects that the store
	// refused to delete. The receipts of layers have none.
	VersionsDeleted []KeptVersion `json:"versions_deleted,omitempty"`
	VersionsLeft    []KeptVersion `json:"versions_left,omitempty"`
	// NamesLeft is what may still name purged samples. It may also name their classes or labels.
	NamesLeft []NameLeft `json:"names_left"`
	// Objects of the generations that were deleted, or would be. See PurgeOptions.Generations.
	Deleted []string `json:"deleted"`

	DryRun bool `json:"dry_run"`
	// Layers with their receipts. They are PurgeOptions.Layers: other layers of the data set are not
	// known, and may hold what their makers derived from the samples.
	Layers []PurgedLayer `json:"layers"`
}

// PurgedLayer is the receipt of a layer.
type PurgedLayer struct {
	Layer string `json:"layer"`
	Error string `json:"error,omitempty"` // why it was left alone. It is no layer of this data set.
	// Unpublished reports that no run has published it. The receipt then has what its runs have put:
	// Holding are those of its objects that hold bytes of samples purged from the data set.
	Unpublished bool `json:"unpublished,omitempty"`

	Receipt *PurgeReport `json:"receipt"` // null with an error
}

// PurgedSample is a removed sample.
type PurgedSample struct {
	Number uint64 `json:"number"`
	Key    string `json:"key"`
	Shard  string `json:"shard"`
}

// PurgedShard is a shard before and after.
type PurgedShard struct {
	Before PurgedObject `json:"before"`
	After  PurgedObject `json:"after"`
}

// PurgedObject is the object of a shard. Content is the identity of its blocks, see SPEC 7.
type PurgedObject struct {
	Name    string `json:"name"`
	Content string `json:"content"` // hash
	Bytes   uint64 `json:"bytes"`
}

func purgedObject(s *metadata.ShardInfo) PurgedObject {
	o := PurgedObject{Name: s.Name, Content: format.DigestString(s.Content()), Bytes: s.Size}
	if s.Plain() {
		o.Bytes += s.Tail
	}
	return o
}

// Purge rewrites the shards that hold removed samples, and publishes a generation without the bytes
// and keys of those samples. Other shards are not read. The rewritten shards have the same samples
// in the same blocks, with zeros in place of removed payloads, so no place moves and the digest
// stays.
//
// Shards of another tool's archives are refused before anything is done; the error wraps
// ErrForeign. A purge that was interrupted left the current generation as it was, and the next one
// finishes it. Where another program publishes meanwhile, Purge continues with the new generation.
func Purge(ctx context.Context, store objstore.Store, opt PurgeOptions) (*PurgeReport, error) {
	if err := opt.idle(ctx, store); err != nil {
		return nil, err
	}
	report, err := purgeOne(ctx, store, opt)
	if err == nil {
		err = report.folders(ctx, store, opt.Layers)
	}
	if err != nil {
		return nil, err
	}
	for _, layer := range opt.Layers {
		l, err := opt.layer(ctx, layer, store)
		if err != nil {
			return nil, fmt.Errorf("the data set is purged, and purging its layer %v failed: purge again: %w", layer,
				err)
		}
		report.Layers = append(report.Layers, l)
	}
	kept, err := keptVersions(ctx, store, opt.Layers, opt.Versions, opt.DryRun)
	if err != nil {
		return nil, fmt.Errorf("the data set is purged, and versions that the store keeps are not deleted: purge again: %w", err)
	}
	for i, l := range report.Layers {
		if l.Receipt == nil {
			continue
		}
		for _, refused := range l.Receipt.VersionsLeft {
			refused.Name = within(store, opt.Layers[i]) + refused.Name
			report.VersionsLeft = append(report.VersionsLeft, refused)
		}
		l.Receipt.VersionsLeft = nil
	}
	report.VersionsDeleted, report.VersionsLeft = kept.deleted, append(report.VersionsLeft, kept.left...)
	report.Versions = kept.remain()
	for _, l := range report.Layers {
		if l.Receipt != nil {
			l.Receipt.Versions = report.Versions
		}
	}
	return report, nil
}

// idle refuses to begin a purge of generations beside programs that it would wait for at its end,
// when its receipt is due.
func (o PurgeOptions) idle(ctx context.Context, store objstore.Store) error {
	if !o.Generations || o.DryRun {
		return nil
	}
	for _, s := range append([]objstore.Store{store}, o.Layers...) {
		busy, err := busy(ctx, s, "purge of generations")
		if err == nil && busy != nil {
			err = busy
		}
		if err != nil {
			return fmt.Errorf("nothing was changed, because another program writes in the same place: purge when it has ended, "+
				"or without the generations: %w", err)
		}
	}
	return nil
}

// busy returns the error that names the programs that hold the lock of a store, nil if there are
// none or the store has no lock.
func busy(ctx context.Context, store objstore.Store, who string) (holders, err error) {
	exclude := objstore.TraitsOf(store).Exclude
	if exclude == nil {
		return nil, nil
	}
	release, err := exclude(ctx, who)
	switch {
	case errors.Is(err, objstore.ErrBusy):
		return err, nil
	case errors.Is(err, objstore.ErrReadOnly), errors.Is(err, fs.ErrPermission), errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	}
	release()
	return nil, nil
}

// folders adds the folders below layers/ that are none of the layers to what was not searched.
func (r *PurgeReport) folders(ctx context.Context, store objstore.Store, layers []objstore.Store) error {
	known := map[string]bool{}
	for _, l := range layers {
		known[strings.TrimSuffix(l.String(), "/")] = true
	}
	all, err := layerFolders(ctx, store)
	for _, folder := range slices.Sorted(maps.Keys(all)) {
		if !known[strings.TrimSuffix(store.String(), "/")+"/"+folder] {
			r.NotSearched = append(r.NotSearched, folder+"/")
		}
	}
	return err
}

// layer purges a layer of a data set.
func (o PurgeOptions) layer(ctx context.Context, store, base objstore.Store) (l PurgedLayer, err error) {
	l.Layer = store.String()
	info, err := InspectLayer(ctx, store, base)
	if err != nil {
		return l, err
	}
	switch l.Unpublished = info.Unpublished; {
	case l.Unpublished:
		l.Receipt = newReport(o.DryRun)
		return l, o.leftovers(ctx, store, base, l.Receipt)
	case !info.Fits:
		l.Error = info.Error
		return l, nil
	}
	if !o.DryRun {
		if _, err := FollowBase(ctx, store, base); err != nil {
			return l, err
		}
	}
	o.Layers, o.Progress = nil, nil
	o.ClearAttributes = slices.DeleteFunc(slices.Clone(o.ClearAttributes),
		func(a string) bool { return !slices.Contains(info.Attributes, a) })
	if l.Receipt, err = purgeOne(ctx, store, o); err != nil {
		return l, err
	}
	l.Receipt.NotSearched = slices.DeleteFunc(l.Receipt.NotSearched, names.LikeOurs) // leftovers finds out
	return l, o.leftovers(ctx, store, base, l.Receipt)
}

// leftovers searches what runs of a layer have put that have not published, and deletes what holds
// bytes of samples purged from the base.
func (o PurgeOptions) leftovers(ctx context.Context, store, base objstore.Store, report *PurgeReport) error {
	of, err := openBase(ctx, base)
	if err != nil {
		return err
	}
	var now current
	if _, err := now.read(ctx, store); err != nil {
		return err
	}
	purged := of.Purged
	if o.DryRun {
		purged = of.Removed
	}
	delete := o.Generations && !o.DryRun
	if exclude := objstore.TraitsOf(store).Exclude; delete && exclude != nil {
		release, err := exclude(ctx, "purge of a layer")
		if err != nil {
			return fmt.Errorf("objects of a run that has not published were not deleted, because a program writes in the same place: purge again when it has ended: %w", err)
		}
		defer release()
	}
	left, err := layerBaseOf(base, of).leftoversOf(ctx, store, now.manifest, purged)
	if err != nil {
		return err
	}
	report.NotSearched = append(report.NotSearched, left.unknown...)
	to := &report.Holding
	if o.Generations {
		to = &report.Deleted
	}
	for _, name := range left.holds {
		if !slices.Contains(*to, name) {
			*to = append(*to, name)
		}
	}
	if !delete {
		return nil
	}
	refused, err := deleteAll(ctx, store, left.holds, nil)
	report.Deleted = withoutRefused(report.Deleted, refused)
	report.refuse(refused)
	return err
}

// refuse adds what the store refused to delete: it still has the bytes.
func (r *PurgeReport) refuse(refused []KeptVersion) {
	for _, kept := range refused {
		r.Holding = append(r.Holding, kept.Name)
	}
	r.VersionsLeft = append(r.VersionsLeft, refused...)
}

func newReport(dry bool) *PurgeReport {
	return &PurgeReport{Samples: []PurgedSample{}, Shards: []PurgedShard{}, Holding: []string{}, Searched: []string{},
		NotSearched: []string{},
		NamesLeft:   []NameLeft{}, Deleted: []string{}, DryRun: dry, Layers: []PurgedLayer{}}
}

// purgeOne is Purge without layers.
func purgeOne(ctx context.Context, store objstore.Store, opt PurgeOptions) (*PurgeReport, error) {
	opt.Log, opt.Memory = cmp.Or(opt.Log, slog.New(slog.DiscardHandler)), cmp.Or(opt.Memory, 1<<30)
	for n := 1; ; n++ {
		p := &purge{opt: opt, report: newReport(opt.DryRun)}
		err := p.run(ctx, store)
		if p.revision != nil {
			err = overtaken(ctx, store, p.prior.info, err)
		}
		if p.revision != nil && n < attempts && again(ctx, store, p.prior.tables, err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return p.report, p.generations(ctx, store)
	}
}

// purge is one attempt.
type purge struct {
	*revision
	opt    PurgeOptions
	report *PurgeReport
	fresh  []samplekey.Entry // of the purged samples, with their new keys
}

// run rewrites shards and publishes.
func (p *purge) run(ctx context.Context, store objstore.Store) error {
	release := func() {}
	var err error
	if !p.opt.DryRun {
		if release, err = hold(ctx, store, "purge", p.opt.Log); err != nil {
			return err
		}
	}
	defer release()
	if p.revision, err = revise(ctx, store, "", p.opt.Log); err != nil {
		return err
	}
	m := p.next("purge")
	m.Purged = m.Removed
	// Totals of cleared attributes would still count the values; readers add them up from the indexes.
	m.AttrTotals = slices.DeleteFunc(slices.Clone(m.AttrTotals),
		func(t metadata.AttrTotal) bool { return slices.Contains(p.opt.ClearAttributes, t.Name) })
	p.report.Generation, p.report.Tables = p.prior.manifest.Generation, p.prior.tables
	todo, err := p.todo()
	if err == nil {
		err = p.shards(ctx, m, todo)
	}
	if err != nil {
		return fmt.Errorf("%v: %w", store, err)
	}
	res, err := p.prior.result(ctx, store)
	if err == nil && len(p.report.Shards) > 0 && !p.opt.DryRun {
		if err = p.keys(ctx, m); err == nil {
			res, err = p.publish(ctx, m)
		}
	}
	if err != nil {
		return fmt.Errorf("%v: %w", store, err)
	}
	p.report.Generation, p.report.Tables, p.report.Digest = res.Generation, res.Tables, format.DigestString(res.Digest)
	return nil
}

// todo lists the shards that hold removed samples whose bytes are there, or may have attributes to
// clear, and refuses those that cannot be rewritten.
func (p *purge) todo() (todo []shardTodo, err error) {
	m := p.prior.manifest
	names := []string{}
	for _, a := range m.Attributes {
		names = append(names, a.Name)
	}
	for _, name := range p.opt.ClearAttributes {
		if !slices.Contains(names, name) {
			return nil, fmt.Errorf("there is no attribute %q to clear, there are %q: nothing was changed", name, names)
		}
	}
	first := uint64(0)
	var refused []string
	for i := range m.Shards {
		s := &m.Shards[i]
		t := shardTodo{number: i, first: first}
		for _, n := range metadata.Within(m.Removed, first, first+s.Samples) {
			if len(p.opt.ClearAttributes) > 0 || !gone(m.Purged, n) {
				t.clear = append(t.clear, int(n-first))
			}
		}
		first += s.Samples
		if len(t.clear) == 0 {
			continue
		}
		if s.Foreign {
			refused = append(refused, s.Name)
		}
		todo = append(todo, t)
	}
	if len(refused) > 0 {
		const most = 10
		text := strings.Join(refused[:min(len(refused), most)], ", ")
		if more := len(refused) - most; more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
		return nil, fmt.Errorf("%w, and removed samples are in %s: nothing was changed; pack the data set into another one, "+
			"which leaves them out, and delete these archives", ErrForeign, text)
	}
	return todo, nil
}

// shards rewrites all shards to do.
func (p *purge) shards(ctx context.Context, m *metadata.Manifest, todo []shardTodo) error {
	all := &rewriting{store: p.store, puts: p.puts, purged: p.prior.manifest.Purged, attributes: p.opt.ClearAttributes,
		memory: p.opt.Memory}
	for done, t := range todo {
		was := &p.prior.manifest.Shards[t.number]
		r := &rewrite{of: all, shardTodo: t, was: was}
		if err := r.load(ctx); err != nil {
			return format.InShard(was.Name, err)
		}
		if len(r.clear) == 0 {
			continue
		}
		for i, s := range r.clear {
			number := t.first + uint64(s)
			if !gone(p.prior.manifest.Purged, number) {
				p.report.Samples = append(p.report.Samples, PurgedSample{Number: number, Key: r.index.Keys.At(s),
					Shard: was.Name})
			}
			p.fresh = append(p.fresh, samplekey.Entry{Hash: samplekey.Hash(r.keys[i]), Number: number})
		}
		after := PurgedObject{Name: r.name}
		if !p.opt.DryRun {
			e, err := r.write(ctx)
			if err != nil {
				return format.InShard(was.Name, err)
			}
			m.Shards[t.number], after = *e, purgedObject(&e.ShardInfo)
		}
		p.report.Shards = append(p.report.Shards, PurgedShard{purgedObject(&was.ShardInfo), after})
		if p.opt.Progress != nil {
			p.opt.Progress(done+1, len(todo))
		}
	}
	return nil
}

// keys puts a keys table in which purged samples have the hashes of their new keys.
func (p *purge) keys(ctx context.Context, m *metadata.Manifest) error {
	if m.Keys == (format.Hash{}) {
		return nil
	}
	samples := metadata.SumSamples(m.Shards)
	old, err := openKeys(ctx, p.store, m.KeysName(), samples)
	if err != nil {
		return err
	}
	defer old.close()
	changed := make(map[uint64]bool, len(p.fresh))
	for _, e := range p.fresh {
		changed[e.Number] = true
	}
	slices.SortFunc(p.fresh, samplekey.Entry.Compare)
	kept := func() (e samplekey.Entry, more bool, err error) {
		for e, more, err = old.next(); more && changed[e.Number]; {
			e, more, err = old.next()
		}
		return e, more, err
	}
	fresh := func(yield func(samplekey.Entry, error) bool) {
		for _, e := range p.fresh {
			if !yield(e, nil) {
				return
			}
		}
	}
	write := func(to io.Writer) error {
		old.rewind()
		return samplekey.WriteTable(to, samples, mergeKeys(kept, fresh))
	}
	h := sha256.New()
	if err := write(h); err != nil {
		return err
	}
	m.Keys = format.Hash(h.Sum(nil))
	return p.puts.named(ctx, m.KeysName(), samplekey.Table{Entries: samples}.Size(), write)
}

// generations finds the generations that hold the bytes, and deletes them if the options say so.
func (p *purge) generations(ctx context.Context, store objstore.Store) error {
	locked := false
	if p.opt.Generations && !p.opt.DryRun {
		if exclude := objstore.TraitsOf(store).Exclude; exclude != nil {
			release, err := exclude(ctx, "purge of generations")
			if err != nil {
				return fmt.Errorf("the purge is published, and no generation was deleted, because a pack or a commit runs in the same place: purge again when it has ended: %w", err)
			}
			defer release()
			locked = true
		}
	} else if !p.opt.DryRun {
		holders, err := busy(ctx, store, "purge")
		if err != nil {
			return fmt.Errorf("the purge is published: %w", err)
		}
		if holders != nil {
			p.report.NotSearched = append(p.report.NotSearched, holders.Error())
		}
	}
	sum, tag, err := loadSummary(ctx, store)
	if err != nil {
		return fmt.Errorf("%v: %w", store, err)
	}
	h := &holding{store: store, current: sum.Tables, purged: map[format.Hash]map[format.Hash]bool{},
		all: map[string]*metadata.Manifest{}, locked: locked,
		keys: map[string]bool{}, known: map[uint64]bool{}, shared: map[content]bool{}, dry: p.opt.DryRun,
		todo: map[string]bool{}}
	for _, s := range p.report.Shards {
		h.todo[s.Before.Name] = p.opt.DryRun
	}
	for _, s := range p.report.Samples {
		h.keys[s.Key], h.known[s.Number] = true, true
	}
	if err := h.find(ctx); err != nil {
		return fmt.Errorf("%v: %w", store, overtaken(ctx, store, tag, err))
	}
	p.report.Holding = append(p.report.Holding, slices.Concat(h.holds, h.byKey, h.orphans, h.keyedOrphans,
		h.archives)...)
	p.report.NotSearched = append(p.report.NotSearched, h.unfinished...)
	p.report.Searched, p.report.Unknown = append(p.report.Searched, h.searched...), h.unknown
	if p.report.NamesLeft, err = namesLeft(ctx, store, sum.Tables); err != nil {
		return fmt.Errorf("%v: %w", store, overtaken(ctx, store, tag, err))
	}
	if !p.opt.Generations {
		return nil
	}
	var refused []KeptVersion
	if p.report.Deleted, refused, err = h.delete(ctx, tag, p.opt.DryRun); err != nil {
		return fmt.Errorf("%v: %w", store, err)
	}
	if !p.opt.DryRun {
		p.report.Holding = append([]string{}, h.archives...)
	}
	p.report.refuse(refused)
	return nil
}
