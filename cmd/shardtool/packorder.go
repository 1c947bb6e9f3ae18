package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/cmd/shardtool/internal/doctor"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/order"
)

// hintPacked prints what doctor would warn of, as far as the totals of the data set show it, and
// the hint of hintOrder. The data set is published, so an error only leaves them out. rows reports
// that names of fields are those of columns, and empty that the user asked for fields without
// bytes; quiet leaves out the warnings.
func hintPacked(cmd *cobra.Command, store objstore.Store, rows, empty, quiet bool) {
	ds, err := reader.Open(cmd.Context(), store, reader.Options{})
	if err != nil {
		return
	}
	defer ds.Close()
	hintOrder(cmd, ds)
	if quiet {
		return
	}
	for _, f := range doctor.Stored(ds, !rows) {
		if f.Kind == doctor.Empty && empty {
			continue
		}
		more := ""
		if f.Count > len(f.Examples) {
			more = ", …"
		}
		examples := shown(strings.Join(f.Examples, ", ")) + more
		fmt.Fprintf(cmd.ErrOrStderr(), "shardtool: %s: %s: %s\n", f.Kind, examples, doctorAdvice[f.Kind])
	}
}

// hintOrder prints how to pack in a random order where a data set is too large for a uniform
// permutation at the default shuffle memory and has its samples in the order of labels: of their
// first folders, or of an attribute.
func hintOrder(cmd *cobra.Command, ds *reader.Dataset) {
	if by, err := packedBy(cmd.Context(), ds); err == nil && by != "" {
		fmt.Fprintf(cmd.ErrOrStderr(),
			"shardtool: samples are stored in the order of %s, which a shuffle mixes less than at random: "+
				"pack folders with --pack-shuffle SEED, or put rows in a random order before packing\n", by)
	}
}

// packedBy names the label by which a data set is sorted in storage, or returns "". It reads the
// indexes of a few shards, and looks at short stretches of large ones.
func packedBy(ctx context.Context, ds *reader.Dataset) (string, error) {
	const mostShards, stretches, stretch = 8, 64, 128
	table, err := ds.OrderTable(ctx)
	if err != nil {
		return "", err
	}
	params, err := order.Choose(table, order.Choice{Shuffle: true})
	if err != nil {
		return "", err
	}
	plan, err := order.New(table, "", params)
	if err != nil || plan.Whole() {
		return "", err
	}
	names, labels := []string{}, map[string]*labelOrder{}
	add := func(name string, value any) {
		if labels[name] == nil {
			names, labels[name] = append(names, name), &labelOrder{count: map[any]int{}}
		}
		labels[name].add(value)
	}
	folders := strings.HasPrefix(ds.Info().Meta["source"], "files:") // keys of rows may be paths of something else
	shards := min(ds.NumShards(), mostShards)
	for i := range shards {
		ix, err := ds.Index(ctx, i*ds.NumShards()/shards)
		if err != nil {
			return "", err
		}
		for n := range min(ix.Keys.Len(), stretches*stretch) {
			sample := n
			if ix.Keys.Len() > stretches*stretch {
				sample = n/stretch*(ix.Keys.Len()/stretches) + n%stretch
			}
			if folders {
				folder, _, _ := strings.Cut(ix.Keys.At(sample), "/")
				add("their first folders", folder)
			}
			for a := range ix.Attrs {
				column := &ix.Attrs[a]
				value, _ := column.At(sample)
				add(fmt.Sprintf("their attribute %q", column.Name), value)
			}
		}
	}
	for _, name := range names {
		if labels[name].sorted() {
			return name, nil
		}
	}
	return "", nil
}

// labelOrder counts labels and how often neighbours have different ones.
type labelOrder struct {
	count   map[any]int
	last    any
	total   int
	changes int
}

func (o *labelOrder) add(label any) {
	if o.total > 0 && label != o.last {
		o.changes++
	}
	o.count[label]++
	o.last = label
	o.total++
}

// sorted reports whether labels change less than an eighth as often as in a random order.
func (o *labelOrder) sorted() bool {
	same := 0.0 // pairs of neighbours with the same label in a random order
	for _, n := range o.count {
		same += float64(n) * float64(n-1) / float64(o.total)
	}
	return 8*float64(o.changes) < float64(o.total-1)-same
}
