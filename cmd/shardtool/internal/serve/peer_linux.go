package serve

import (
	"fmt"
	"net"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// process is the process at the other end of a socket.
type process struct {
	pid int
	fd  int // refers to it; -1 where the system has no such descriptors
}

// processOf returns the process at the other end of a socket. It refuses processes of other users.
func processOf(sock *net.UnixConn) (process, error) {
	raw, err := sock.SyscallConn()
	if err != nil {
		return process{}, err
	}
	var who *unix.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) {
		who, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil || failed != nil {
		return process{}, fmt.Errorf("who connects is not known: %w", failed)
	}
	if int(who.Uid) != os.Getuid() {
		return process{}, fmt.Errorf("process %d is of another user", who.Pid)
	}
	p := process{pid: int(who.Pid)}
	if p.fd, err = unix.PidfdOpen(p.pid, 0); err != nil {
		p.fd = -1
	}
	return p, nil
}

// alive reports whether the process has not ended. Processes that it forked may have its socket.
func (p process) alive() bool {
	if p.fd < 0 {
		return unix.Kill(p.pid, 0) != unix.ESRCH
	}
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}}, 0)
	return n == 0 || err != nil
}

func (p process) close() {
	if p.fd >= 0 {
		unix.Close(p.fd)
	}
}

// affinity is the processors that a host's processes may use: those of any of them. A launcher may
// give each its own.
type affinity struct {
	set unix.CPUSet
}

// join adds the processors of another process. GOMAXPROCS follows with its OPEN.
func (a *affinity) join(p process) {
	var its, own unix.CPUSet
	if unix.SchedGetaffinity(p.pid, &its) != nil || unix.SchedGetaffinity(0, &own) != nil {
		return
	}
	before := own.Count()
	for i := range a.set {
		a.set[i] |= its[i] | own[i]
	}
	if a.set.Count() == before {
		return
	}
	threads, _ := os.ReadDir("/proc/self/task")
	for _, t := range threads {
		if id, _ := strconv.Atoi(t.Name()); id > 0 {
			_ = unix.SchedSetaffinity(id, &a.set)
		}
	}
}
