//go:build !unix

package local

import "context"

// children is empty on systems where these tests cannot kill and restart processes.
var children = map[string]func(ctx context.Context, args []string) error{}
