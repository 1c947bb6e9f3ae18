//go:build !unix

package cache

import "context"

// children are none where a process cannot be killed and started as these tests need it.
var children = map[string]func(ctx context.Context, args []string) error{}
