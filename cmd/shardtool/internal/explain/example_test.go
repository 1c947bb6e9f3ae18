package explain_test

import (
	"context"
	"fmt"
	"math/big"
	"slices"

	"github.com/shardtool/shardtool/cmd/shardtool/internal/explain"
	"github.com/shardtool/shardtool/internal/testset"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/order"
)

// What did step 1 of a run read?
func ExampleOf() {
	ctx := context.Background()
	spec := reader.Spec{Length: reader.Length{Units: 12}, Order: order.Choice{Tail: order.TailShort, GlobalBatch: 4}}
	for i, name := range []string{"code", "web"} {
		ds := pack(name)
		defer ds.Close()
		spec.Sources = append(spec.Sources, reader.SourceSpec{Name: name, Set: ds, Share: big.NewRat([]int64{1, 3}[i], 4), Fixed: reader.Lanes{Lanes: 1}})
	}
	sources, err := reader.OpenSources(ctx, spec, nil, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	run, err := sources.Resolve(ctx, spec, nil, reader.Change{}, reader.Planning{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer run.Close()
	at, err := run.Step(ctx, 1, 4)
	if err != nil {
		fmt.Println(err)
		return
	}
	step, err := explain.Of(ctx, run, at, explain.Options{Keys: true})
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
