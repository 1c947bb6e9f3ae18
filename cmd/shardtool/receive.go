package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/shardtool/shardtool/cmd/shardtool/internal/receive"
	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/hint"
	"github.com/shardtool/shardtool/internal/format/codec"
	"github.com/shardtool/shardtool/internal/sys/plain"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/writer"
)

// newReceive is for programs, so the list of commands leaves it out.
func newReceive() *cobra.Command {
	return &cobra.Command{
		Use:    "receive",
		Hidden: true,
		Short:  "Pack samples that another process sends",
		Long: `Pack the samples that arrive on standard input, as shardtool.Writer of the Python package sends them, and publish them
under the address that they begin with. It answers on standard output. If the input ends early, nothing is published.

It ignores SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2: it ends with its input.`,
		Example: "  shardtool receive < frames   # a program's end of two pipes, in practice",
		Args:    usageArgs(cobra.MaximumNArgs(1)), // older packages give one, and hear of their version
		RunE:    func(cmd *cobra.Command, _ []string) error { return runReceive(cmd) },
	}
}

// reply is a line of the child's answers.
type reply struct {
	Kind string `json:"kind"`
	// At is the place up to which the store has the samples; of READY.
	At *receive.Place `json:"at,omitempty"`
	// First is the number in the key of this run's first sample, where the program gives no key.
	First int64 `json:"first,omitempty"`
	// Done reports that an equal run published before: there is nothing to write.
	Done bool `json:"done,omitempty"`
	// Stored is the number of samples that the store has; of STATE.
	Stored int64 `json:"stored,omitempty"`
	// Layer describes what is to be written of a layer in parts.
	Layer *layerReply `json:"layer,omitempty"`

	Result *receiveResult `json:"result,omitempty"`
	Error  *receiveError  `json:"error,omitempty"`
}

// receiveResult describes what was published, or the part that was put.
type receiveResult struct {
	Dataset      string `json:"dataset"`
	Published    bool   `json:"published"`
	Generation   uint64 `json:"generation"`
	Tables       string `json:"tables,omitempty"`
	Digest       string `json:"digest,omitempty"`
	Samples      uint64 `json:"samples"`
	Shards       uint64 `json:"shards"`
	Bytes        uint64 `json:"bytes"`
	PayloadBytes uint64 `json:"payload_bytes"`
	Written      int64  `json:"written"`
	Resumed      int64  `json:"resumed"`
	// Missing, Unknown and Removed are of a layer: samples without a row, and rows that were left out.
	Missing uint64 `json:"missing,omitempty"`
	Unknown int64  `json:"unknown,omitempty"`
	Removed int64  `json:"removed,omitempty"`
}

type receiveError struct {
	Kind    string `json:"kind"`
	Code    int    `json:"code"`
	Message string `json:"message"`
	Key     string `json:"key,omitempty"`
	// Hints are for the parent to spell.
	Hints []hint.Hint `json:"hints,omitempty"`
}

// errLeft is the error of a writer that begins where another run left shards.
var errLeft = errors.New("leftovers")

func runReceive(cmd *cobra.Command) error {
	leaveSignals()
	r := &receiver{out: json.NewEncoder(cmd.OutOrStdout())}
	err := r.run(context.WithoutCancel(cmd.Context()), cmd.InOrStdin(), cmd.ErrOrStderr())
	if err == nil || errors.Is(err, receive.ErrLeft) {
		return err
	}
	e := &receiveError{Kind: "failed", Code: exitCode(err), Message: plain.Line(objstore.Redact(err.Error())),
		Hints: hint.Of(err)}
	sample, ok := errors.AsType[*writer.SampleError](err)
	switch {
	case ok:
		e.Kind, e.Key, e.Message = "sample", sample.Key, plain.Text(objstore.Redact(fmt.Sprintf("sample %.256q: %v",
			sample.Key, sample.Err)))
	case errors.Is(err, writer.ErrExists), errors.Is(err, errLeft):
		e.Kind = "exists"
	case errors.Is(err, writer.ErrSource) && r.begin.Parts == 0:
		e.Hints = []hint.Hint{hint.Set("mode", "overwrite", "replaces what is left")}
	case errors.Is(err, receive.ErrProtocol):
		e.Kind = "protocol"
	case errors.Is(err, format.ErrDuplicate):
		e.Kind = "sample"
	case e.Code == exitUsage:
		e.Kind = "config"
	case e.Code == exitCorrupt:
		e.Kind = "corrupt"
	case e.Code == exitNotFound:
		e.Kind = "not_found"
	}
	_ = r.reply(reply{Kind: "error", Error: e}) // a parent that has ended does not read it
	return &exitError{code: e.Code}
}

// receiver is the child of a parent that writes.
type receiver struct {
	out   *json.Encoder
	mu    sync.Mutex // of out
	begin *receive.Begin
	opt   writer.Options
	ready bool
	// stored counts the samples in shards that the store has.
	stored atomic.Int64
}

// reply writes a line. Any goroutine may call it.
func (r *receiver) reply(line reply) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.out.Encode(line)
}

func (r *receiver) run(ctx context.Context, in io.Reader, stderr io.Writer) error {
	var err error
	if r.begin, err = receive.ReadBegin(in); err != nil {
		return err
	}
	store, err := current(ctx, r.begin.Dataset.Secret(), "a writer makes a new generation: give %s without @%s")
	if err != nil {
		return err
	}
	if err := r.options(); err != nil {
		return err
	}
	r.opt.Log = slog.New(slog.NewTextHandler(stderr, nil))
	limitMemory(r.opt.Memory, encoderMemory(&r.opt))
	if r.begin.Layer != nil {
		return r.layer(ctx, in, store)
	}
	var known map[string]string
	var first int64
	if r.opt.Mode == writer.ModeAppend {
		if known, first, err = writer.Types(ctx, store); err != nil {
			return err
		}
		if r.begin.Layout == "" {
			stacked, has, err := writer.Stacked(ctx, store)
			if err != nil {
				return err
			}
			if has && !stacked { // its readers may know no other layout
				r.begin.Layout = writer.LayoutSamples.String()
			}
		}
	}
	src := receive.New(r.begin, in, known, func(at receive.Place) error {
		if err := r.leftovers(ctx, store); err != nil {
			return err
		}
		r.ready = true
		r.stored.Store(at.Samples)
		return r.reply(reply{Kind: "ready", At: &at, First: first})
	})
	src.First = first
	src.Asked = func() error { return r.reply(reply{Kind: "state", Stored: r.stored.Load()}) }
	r.opt.Stored = func(samples int64) { r.stored.Add(samples) }
	defer src.Close()
	if r.begin.Parts > 0 {
		return r.part(ctx, store, src)
	}
	sweep(ctx, store)
	res, err := writer.Pack(ctx, store, src, r.opt)
	if err != nil {
		return err
	}
	return r.published(ctx, store, res)
}

// leftovers returns an error if shards that another run left are where the first shard would go.
func (r *receiver) leftovers(ctx context.Context, store objstore.Store) error {
	if r.opt.Resume || r.begin.Parts > 0 || r.opt.Mode == writer.ModeOverwrite {
		return nil
	}
	left, err := writer.Leftovers(ctx, store, r.opt.Name)
	if err != nil || len(left) == 0 {
		return err
	}
	how := fmt.Sprintf("delete them with `shardtool prune --grace 0s %s`", store)
	if r.opt.Mode == writer.ModeCreate {
		how = "on_exists='resume' continues that run, on_exists='overwrite' replaces it"
	}
	return fmt.Errorf("%w: shards of a run that did not publish, from %s to %s: %s", errLeft, left[0],
		left[len(left)-1], how)
}

// options converts BEGIN to options.
func (r *receiver) options() (err error) {
	b, o := r.begin, &r.opt
	*o = writer.Options{
		Name: b.Name, BlockSize: b.BlockSize, ShardSize: b.ShardSize, SamplesPerShard: b.SamplesPerShard,
		Resume:         b.Resume,
		KeepDuplicates: b.KeepDuplicates, Workers: b.Workers, Memory: cmp.Or(b.Memory, 256<<20),
	}
	if err := o.Check(); err != nil {
		return argumentError(err)
	}
	if o.Level, err = codec.ParseLevel(b.Level); err != nil {
		return usagef("level=%q: use fastest, default, better or best", b.Level)
	}
	o.Layout = writer.LayoutOfSource
	if b.Layout != "" {
		if o.Layout, err = writer.ParseLayout(b.Layout); err != nil {
			return usagef("layout=%q: use samples, stacked or auto", b.Layout)
		}
	}
	switch b.Mode {
	case "create":
	case "append":
		o.Mode = writer.ModeAppend
	case "overwrite":
		o.Mode = writer.ModeOverwrite
	default:
		return fmt.Errorf("%w: mode %q", receive.ErrProtocol, b.Mode)
	}
	return nil
}

// part packs a part. The last part to be complete publishes all of them.
func (r *receiver) part(ctx context.Context, store objstore.Store, src *receive.Source) error {
	b := r.begin
	part, err := writer.PackPart(ctx, store, src, b.Part, b.Parts, r.opt)
	if err != nil {
		return err
	}
	if !r.ready {
		if err := r.reply(reply{Kind: "ready", At: &receive.Place{Samples: int64(part.Samples)},
			Done: true}); err != nil {
			return err
		}
		r.ready = true
	}
	left, err := writer.Missing(ctx, store, b.Name, b.Parts)
	if err != nil {
		return err
	}
	if len(left.Missing) > 0 {
		return r.reply(reply{Kind: "result", Result: &receiveResult{
			Dataset: store.String(), Generation: part.Generation, Samples: part.Samples, Shards: part.Shards,
			Bytes:        part.Bytes,
			PayloadBytes: part.PayloadBytes, Written: part.Written, Resumed: part.Adopted,
		}})
	}
	res, err := writer.Commit(ctx, store, writer.CommitOptions{
		Name: b.Name, Parts: b.Parts, KeepDuplicates: b.KeepDuplicates, Memory: r.opt.Memory,
	})
	if err != nil {
		return err
	}
	res.Written, res.Adopted = part.Written, part.Adopted
	return r.published(ctx, store, res)
}

// published replies with a description of the current generation.
func (r *receiver) published(ctx context.Context, store objstore.Store, res *writer.Result) error {
	if !r.ready { // an equal run had published
		types, _, err := writer.Types(ctx, store)
		if err == nil {
			err = r.reply(reply{Kind: "ready", At: &receive.Place{Samples: int64(res.Samples), Types: types},
				Done: true})
		}
		if err != nil {
			return err
		}
	}
	return r.reply(reply{Kind: "result", Result: publishedReply(store, res)})
}

// layerReply describes a layer in parts: its shards from First on begin at the samples At, and end
// with the last of them.
type layerReply struct {
	First   int      `json:"first"`
	At      []uint64 `json:"at"`
	Missing []int    `json:"missing"`
	// Types are the types of the fields of the shards that are there.
	Types map[string]string `json:"types"`
}

// layer writes a layer from rows that the parent sends.
func (r *receiver) layer(ctx context.Context, in io.Reader, base objstore.Store) error {
	l := r.begin.Layer
	store, err := layerStore(ctx, "a layer", r.begin.Dataset.Secret(), l.Name.Secret())
	if err != nil {
		return err
	}
	r.opt.SourceOptions = l.Options
	opt := writer.LayerOptions{Pack: r.opt, Replaces: l.Replaces, AllowMissing: l.AllowMiss, SkipUnknown: l.SkipUnknown,
		LargeBlocks: l.LargeBlocks}
	opt.Pack.Layout = writer.LayoutAuto
	if l.Parts {
		return r.layerParts(ctx, in, store, base, opt)
	}
	if l.Update {
		opt.Pack.Mode = writer.ModeOverwrite
		if opt.Before, opt.Earlier, err = rowsBefore(ctx, store, &r.opt); err != nil {
			return err
		}
		defer opt.Before.Close()
		if opt.Earlier != nil {
			defer opt.Earlier.Close()
		}
	}
	src := receive.New(r.begin, in, nil, func(at receive.Place) error {
		r.ready = true
		return r.reply(reply{Kind: "ready", At: &at})
	})
	src.Asked = func() error { return r.reply(reply{Kind: "state"}) }
	defer src.Close()
	sweep(ctx, store)
	res, err := writer.AddLayer(ctx, store, base, src, opt)
	if err != nil {
		return r.layerError(err)
	}
	if !r.ready { // an equal run had published
		if err := r.reply(reply{Kind: "ready", At: &receive.Place{Samples: int64(res.Samples)},
			Done: true}); err != nil {
			return err
		}
	}
	out := publishedReply(store, &res.Result)
	out.Missing, out.Unknown, out.Removed = res.Missing, res.Unknown, res.Removed
	return r.reply(reply{Kind: "result", Result: out})
}

// layerParts writes shards of a layer, until the parent leaves.
func (r *receiver) layerParts(ctx context.Context, in io.Reader, store, base objstore.Store,
	opt writer.LayerOptions) error {
	shards := receive.NewShards(r.begin, in)
	begin := func() (*writer.PartsReport, func(writer.Splitter) writer.Splitter, error) {
		return writer.LayerParts(ctx, store, base, shards.Rows(nil), opt)
	}
	left, of, err := begin()
	if err != nil {
		return r.layerError(err)
	}
	said := &layerReply{First: left.First, At: left.At, Missing: []int{}, Types: left.Types}
	for _, part := range left.Missing {
		said.Missing = append(said.Missing, left.First+part)
	}
	if err := r.reply(reply{Kind: "layer", Done: left.Published, Layer: said}); err != nil {
		return err
	}
	for err == nil {
		err = r.layerRound(ctx, store, shards, of, left)
		if err == nil {
			left, _, err = begin()
		}
		if err == nil {
			err = r.commitLayer(ctx, store, base, left)
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return r.layerError(err)
}

// layerRound writes the shards that the parent sends before it asks to publish the layer. The error
// is io.EOF where the parent has left. It returns as soon as a shard fails: the parent may wait for
// the answer, and sends nothing then.
func (r *receiver) layerRound(ctx context.Context, store objstore.Store, shards *receive.Shards,
	of func(writer.Splitter) writer.Splitter, left *writer.PartsReport) error {
	work, doing := errgroup.WithContext(ctx)
	work.SetLimit(2) // a shard is put while the rows of the next one arrive
	for {
		asked := make(chan receive.Asked, 1)
		go func() { asked <- shards.Next() }() // ends once its read does
		var next receive.Asked
		select {
		case next = <-asked:
		case <-doing.Done():
			return work.Wait()
		}
		if next.Err != nil || next.Commit {
			return cmp.Or(work.Wait(), next.Err)
		}
		ended := make(chan struct{})
		end := sync.OnceFunc(func() { close(ended) })
		work.Go(func() error {
			defer end()
			return r.layerShard(doing, store, shards, of, end, next.Shard-left.First, left.Parts)
		})
		<-ended
	}
}

// layerShard writes the shard whose rows the parent sends. It calls end when it has read all of
// them.
func (r *receiver) layerShard(ctx context.Context, store objstore.Store, shards *receive.Shards,
	of func(writer.Splitter) writer.Splitter, end func(), part, parts int) error {
	asked := false
	rows := shards.Rows(func(at receive.Place) error {
		asked = true
		return r.reply(reply{Kind: "ready", At: &at})
	})
	rows.Ended = end
	defer rows.Close()
	src := of(rows)
	defer src.Close()
	done, err := writer.PackPart(ctx, store, src, part, parts, r.opt)
	if err != nil {
		return err
	}
	if !asked { // it is there
		return r.reply(reply{Kind: "ready", Done: true})
	}
	return r.reply(reply{Kind: "result", Result: &receiveResult{
		Samples: done.Samples, Shards: done.Shards, Bytes: done.Bytes, PayloadBytes: done.PayloadBytes,
		Written: done.Written, Resumed: done.Adopted,
	}})
}

// commitLayer publishes the layer if all of its shards are there.
func (r *receiver) commitLayer(ctx context.Context, store, base objstore.Store, left *writer.PartsReport) error {
	if len(left.Missing) > 0 {
		return r.reply(reply{Kind: "result", Result: &receiveResult{Dataset: store.String()}})
	}
	res, err := writer.Commit(ctx, store, writer.CommitOptions{Name: left.Name, Parts: left.Parts, Base: base,
		Memory: r.opt.Memory})
	if err != nil {
		return err
	}
	return r.reply(reply{Kind: "result", Result: publishedReply(store, res)})
}

// layerError says in terms of Python what to do.
func (r *receiver) layerError(err error) error {
	switch {
	case errors.Is(err, writer.ErrExists):
		return fmt.Errorf("%w: on_exists='overwrite' replaces it, and on_exists='append' adds shards for what the data set has gained since", err)
	case errors.Is(err, writer.ErrMissingRow):
		return fmt.Errorf("%w with missing='allow'", err)
	case errors.Is(err, writer.ErrUnknownKey):
		if row, ok := errors.AsType[*writer.SampleError](err); ok {
			row.Err = fmt.Errorf("%w: correct it, or leave such rows out with unknown='skip'", row.Err)
		}
	}
	return err
}

// publishedReply describes the generation that was published.
func publishedReply(store objstore.Store, res *writer.Result) *receiveResult {
	return &receiveResult{
		Dataset: store.String(), Published: true, Generation: res.Generation, Tables: res.Tables,
		Digest:  format.DigestString(res.Digest),
		Samples: res.Samples, Shards: res.Shards, Bytes: res.Bytes, PayloadBytes: res.PayloadBytes,
		Written: res.Written, Resumed: res.Adopted,
	}
}
