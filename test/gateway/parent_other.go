//go:build !linux

package gateway

import "os/exec"

// pinToParent does nothing: only Linux ends a process with its parent. Close ends it.
func pinToParent(*exec.Cmd) (release func()) { return func() {} }
