// Command s3demo runs a program with an S3 server: it starts the server on a temporary directory,
// gives the program its address and keys in AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID,
// AWS_SECRET_ACCESS_KEY, AWS_REGION and BUCKET, and stops the server afterwards. Without a program
// it prints these as lines for a shell and waits for an interrupt, or for the end of its standard
// input if that is a pipe.
//
// With -first-byte, -total, -conn or -up the address names a proxy in front of the server, which
// simulates a slow network. DIRECT_ENDPOINT_URL is then the address of the server.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/shardtool/shardtool/test/gateway"
	"github.com/shardtool/shardtool/test/proxy"
)

func main() {
	var network proxy.Options
	dir := flag.String("C", "", "run the program in this `directory`")
	flag.DurationVar(&network.FirstByte, "first-byte", 0, "time to the first byte of every answer")
	flag.Int64Var(&network.Total, "total", 0, "rate of all answers together in MB/s; 0 is no bound")
	flag.Int64Var(&network.Up, "up", 0, "rate of the bodies of all requests together in MB/s; 0 is no bound")
	flag.Int64Var(&network.PerConn, "conn", 0, "rate of one connection in MB/s; 0 is no bound")
	flag.Parse()
	network.Total, network.PerConn, network.Up = 1e6*network.Total, 1e6*network.PerConn, 1e6*network.Up
	code, err := run(*dir, network, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "s3demo:", err)
		os.Exit(max(code, 1))
	}
	os.Exit(code)
}

// run returns the program's exit code, or an error if it did not run.
func run(dir string, network proxy.Options, args []string) (code int, err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	data, err := os.MkdirTemp("", "s3demo-*")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(data)
	server, err := gateway.Start(ctx, data)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	env := server.Env()
	if network.FirstByte > 0 || network.Total > 0 || network.PerConn > 0 || network.Up > 0 {
		p, err := proxy.Start(server.Endpoint, network)
		if err != nil {
			return 0, err
		}
		defer p.Close()
		env = append(env, "DIRECT_ENDPOINT_URL="+server.Endpoint, "AWS_ENDPOINT_URL="+p.URL) // the last of two counts
	}
	if len(args) == 0 {
		for _, line := range env {
			fmt.Println("export", line)
		}
		wait(ctx)
		return 0, nil
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	// The program receives the interrupt and may clean up before it is killed.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	err = cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		fmt.Fprintf(os.Stderr, "log of the S3 server:\n%s", server.Log())
		if exit.ExitCode() > 0 {
			return exit.ExitCode(), nil
		}
	}
	return 0, err
}

// wait returns when the context ends, or when the other end of the standard input is closed.
func wait(ctx context.Context) {
	if info, err := os.Stdin.Stat(); err == nil && info.Mode()&os.ModeNamedPipe != 0 {
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			_, _ = io.Copy(io.Discard, os.Stdin)
		}()
		select {
		case <-gone:
		case <-ctx.Done():
		}
		return
	}
	<-ctx.Done()
}
