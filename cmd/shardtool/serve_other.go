//go:build !linux

package main

import (
	"errors"
	"runtime"

	"github.com/spf13/cobra"
)

func runServe(*cobra.Command, int, int, string) error {
	return errors.New("serve shares memory in a way that only Linux has, this is " + runtime.GOOS)
}
