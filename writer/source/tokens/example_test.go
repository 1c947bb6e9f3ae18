package tokens_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"log"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
	"github.com/shardtool/shardtool/writer/source/tokens"
)

// exampleIDs puts 10 token ids into a file of nothing but ids.
func exampleIDs(ctx context.Context) source.Input {
	var ids []byte
	for id := range uint16(10) {
		ids = binary.LittleEndian.AppendUint16(ids, id)
	}
	from := mem.New()
	if _, err := objstore.Put(ctx, from, "train.bin", ids, objstore.Condition{}); err != nil {
		log.Fatal(err)
	}
	return source.Input{Store: from, Name: "train.bin"}
}

// Cutting an array into samples of 4 tokens; what is left is padded.
func ExampleNewArrays() {
	ctx := context.Background()
	src, err := tokens.NewArrays(ctx, []source.Input{exampleIDs(ctx)}, tokens.Options{Length: 4, Raw: tokens.Uint16, Remainder: tokens.Pad})
	if err != nil {
		log.Fatal(err)
	}
	defer src.Close()
	r, err := writer.Pack(ctx, mem.New(), src, writer.Options{Name: "train"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d tokens in %d samples\n", src.Tokens, r.Samples)
	// Output: 10 tokens in 3 samples
}

// Joining documents, here each array, into samples of 4 tokens.
func ExampleNewJoin() {
	ctx := context.Background()
	documents, err := tokens.NewArrays(ctx, []source.Input{exampleIDs(ctx)}, tokens.Options{Raw: tokens.Uint16, Mixed: true})
	if err != nil {
		log.Fatal(err)
	}
	src, err := tokens.NewJoin(documents, tokens.JoinOptions{Length: 4, Separator: []int64{99}})
	if err != nil {
		log.Fatal(err)
	}
	defer src.Close()
	for {
		s, err := src.Next(ctx)
		if err != nil { // io.EOF
			break
		}
		for _, f := range s.Fields {
			if f.Name == tokens.MapField {
				fmt.Printf("%s\n", f.Data)
			}
		}
	}
	// Output:
	// {"document":["train"],"offset":[0],"start":[0],"length":[4]}
	// {"document":["train"],"offset":[4],"start":[0],"length":[4]}
	// {"document":["train"],"offset":[8],"start":[0],"length":[3]}
}
