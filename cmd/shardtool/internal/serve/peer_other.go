//go:build !linux

package serve

import "net"

// process is the process at the other end of a socket.
type process struct{ pid int }

// processOf fails: on this system, processes share no server.
func processOf(*net.UnixConn) (process, error) {
	return process{}, configf("--listen: processes share a server on Linux alone")
}

func (p process) alive() bool { return false }
func (p process) close()      {}

type affinity struct{}

func (a *affinity) join(process) {}
