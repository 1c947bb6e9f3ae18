package address_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/shardtool/shardtool/objstore/address"
)

// Open sends no request, so an address can be checked before a job starts.
func ExampleOpen() {
	for _, addr := range []string{"out/train", "https://user:password@host/train?token=secret", "ftp://host/train"} {
		store, err := address.Open(context.Background(), addr, address.Options{})
		switch {
		case errors.Is(err, address.ErrScheme):
			fmt.Println("no store:", addr)
		case err != nil:
			fmt.Println(err)
		default:
			fmt.Println(store)
		}
	}
	// Output:
	// out/train
	// https://host/train
	// no store: ftp://host/train
}
