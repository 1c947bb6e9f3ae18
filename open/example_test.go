package open_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/shardtool/shardtool/open"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/order"
)

// A mix file names two data sets, one of them by a view. Sources opens all that it names.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "open")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	web, code := filepath.Join(dir, "web"), filepath.Join(dir, "code")
	documents(ctx, web, 100, "good")
	documents(ctx, code, 40, "")
	name := filepath.Join(dir, "mix.yaml")
	mix := fmt.Sprintf("sources:\n  web: {data: %q, weight: 0.75}\n  code: {data: %q, weight: 0.25}\n", web+"#good", code)
	if err := os.WriteFile(name, []byte(mix), 0o644); err != nil {
		log.Fatal(err)
	}

	sources, err := open.Sources(ctx, name, nil, open.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer sources.Close()
	run, err := sources.Resolve(ctx, reader.Spec{Order: order.Choice{Shuffle: true, GlobalBatch: 8}}, nil, reader.Change{}, reader.Planning{})
	if err != nil {
		log.Fatal(err)
	}
	defer run.Close()
	stream, err := run.Stream(ctx, reader.StreamOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer stream.Close()
	batch, err := stream.Next(ctx)
	if err != nil {
		log.Fatal(err)
	}
	given := map[string]int{}
	for i := range batch.Samples {
		given[batch.Samples[i].Source()]++
	}
	fmt.Println(given)
	// Output:
	// map[code:2 web:6]
}
