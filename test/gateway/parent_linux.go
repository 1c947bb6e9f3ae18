package gateway

import (
	"os/exec"
	"runtime"
	"syscall"
)

// pinToParent makes the kernel kill the process when this one ends, even by a panic or SIGKILL. The
// kernel watches the thread that starts it, so the goroutine keeps its thread until the returned
// function is called.
func pinToParent(cmd *exec.Cmd) (release func()) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread()
	return runtime.UnlockOSThread
}
