package gateway_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// TestKilledParent kills the process that started a server: the server ends too.
func TestKilledParent(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childDir+"="+t.TempDir())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 200)
	n, err := out.Read(line)
	endpoint := strings.TrimSpace(string(line[:n]))
	if err != nil || !alive(endpoint) {
		cmd.Process.Kill()
		t.Fatalf("no server at %q: %v", endpoint, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	for range 3000 {
		if !alive(endpoint) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("the server outlived its parent")
}
