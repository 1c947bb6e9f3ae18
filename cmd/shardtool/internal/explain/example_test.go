package explain_test

import (
	"context"
	"fmt"
	"slices"

	"github.com/shardtool/shardtool/cmd/shardtool/internal/explain"
	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/mix"
	"github.com/shardtool/shardtool/internal/testset"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/order"
)

// What did step 1 of a run read?
func ExampleMix() {
	ctx := context.Background()
	var m reader.Mix
	var sources []mix.Source
	for _, name := range []string{"code", "web"} {
		ds := pack(name)
		defer ds.Close()
		m.Sets = append(m.Sets, ds)
		sources = append(sources, mix.Source{
			Name: name, Digest: format.DigestString(ds.Digest()), Units: ds.NumSamples(), Lanes: 1, Delay: 1, Head: 1, Affinity: order.AffinityEpoch,
		})
	}
	var err error
	m.Plan, err = mix.New(mix.Mix{Tail: order.TailShort, Epoch: 12, Sources: sources, Segments: []mix.Segment{{Weights: []uint64{1, 3}}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	x := m.Plan.Mix()
	at, err := x.Position(mix.Steps{GlobalBatch: 4}, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	step, err := explain.Mix(ctx, m, at, explain.Options{GlobalBatch: 4, Keys: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, s := range step.Sources {
		fmt.Printf("%s: %d of %d, %d before\n", s.Name, s.InStep, len(step.Samples), s.Given)
	}
	for _, s := range step.Samples {
		fmt.Println(s.Position, s.Source, s.Key)
	}
	// Output:
	// code: 1 of 4, 1 before
	// web: 3 of 4, 3 before
	// 4 web web3
	// 5 code code1
	// 6 web web4
	// 7 web web5
}

// pack packs eight samples.
func pack(name string) *reader.Dataset {
	var samples []testset.Sample
	for i := range 8 {
		samples = append(samples, testset.Sample{Key: fmt.Sprint(name, i), Fields: []testset.Field{{Name: "txt", Data: []byte(name)}}})
	}
	store := mem.New()
	if _, err := testset.Build(context.Background(), store, slices.Values(samples), testset.Options{}); err != nil {
		panic(err)
	}
	ds, err := reader.Open(context.Background(), store, reader.Options{})
	if err != nil {
		panic(err)
	}
	return ds
}
