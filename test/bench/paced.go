package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/shardtool/shardtool/test/bench/paced"
)

// pacedRows measures, over the throttled network, how long a consumer waits that needs 90 % of the
// highest rate, and whether the memory of its process stays constant.
func (b *bench) pacedRows() error {
	if err := b.distant(); err != nil {
		return err
	}
	bin, err := b.program()
	if err != nil {
		return err
	}
	r, err := paced.Run(b.ctx, paced.Options{
		Binary: bin, Duration: b.long,
		Args: []string{b.address(), "--shuffle", "--tail", "wrap", "--global-batch", "64", "--shuffle-memory", "64MiB",
			"--requests", fmt.Sprint(b.inFlight)},
	})
	if err != nil {
		return err
	}
	r.Add(&b.Table, "S3, 100 KB")
	return nil
}

// address returns the address, through the proxy, of the data set of the streams.
func (b *bench) address() string {
	return fmt.Sprintf("s3://%s/%s?endpoint=%s&region=%s&path_style=true", b.server.Bucket, streamPrefix, b.proxy.URL,
		b.server.Region)
}

// program builds the command once.
func (b *bench) program() (string, error) {
	bin := filepath.Join(b.dir, "shardtool")
	build := exec.CommandContext(b.ctx, "go", "build", "-trimpath", "-o", bin, "./cmd/shardtool")
	build.Dir, build.Env = "..", append(os.Environ(), "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, text)
	}
	return bin, nil
}
