// Package peak measures how much memory a process had.
package peak

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// Memory runs a process and returns the most memory it had resident, in MiB. It asks the kernel for
// the high-water mark while the process runs: the figure that wait returns counts what this process
// had when it forked, too.
func Memory(cmd *exec.Cmd) (float64, error) {
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	peak := 0.0
	for {
		select {
		case err := <-done:
			return peak, err
		case <-time.After(2 * time.Millisecond):
		}
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(status)) {
			if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
				var kib float64
				if _, err := fmt.Sscan(rest, &kib); err == nil {
					peak = max(peak, kib/1024)
				}
			}
		}
	}
}
