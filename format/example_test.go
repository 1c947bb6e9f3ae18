package format_test

import (
	"errors"
	"fmt"
	"io"

	"github.com/shardtool/shardtool/format"
)

// The name of a member of a shard consists of a sample's key and a field.
func ExampleSplitName() {
	for _, name := range []string{"cats/0001.jpg", "cats/0001.label.json", "readme"} {
		key, field := format.SplitName([]byte(name))
		fmt.Printf("%q %q\n", key, field)
	}
	fmt.Println(format.JoinName("cats/0001", "label.json"))
	// Output:
	// "cats/0001" "jpg"
	// "cats/0001" "label.json"
	// "readme" ""
	// cats/0001.label.json
}

// An error of damaged data says where the damage is.
func ExamplePosError() {
	err := format.InShard("train-000000.tar.zst", format.At(4096, fmt.Errorf("%w: %w", format.ErrCorrupt, io.ErrUnexpectedEOF)))
	if place, ok := errors.AsType[*format.PosError](err); ok {
		fmt.Println(place.Shard, place.Offset, errors.Is(err, format.ErrCorrupt))
	}
	// Output:
	// train-000000.tar.zst 4096 true
}
