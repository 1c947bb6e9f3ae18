// Command s3demo runs a program with an S3 server of its own: it starts the server on a temporary directory, gives the
// program its address and keys in AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and BUCKET, and
// stops the server afterwards. Without a program it prints these as lines for a shell and waits for an interrupt.
//
//	go run ./cmd/s3demo -C .. bash testdata/demo-s3.sh bin/shardtool
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/shardtool/shardtool/test/gateway"
)

func main() {
	dir := flag.String("C", "", "run the program in this `directory`")
	flag.Parse()
	code, err := run(*dir, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "s3demo:", err)
		os.Exit(max(code, 1))
	}
	os.Exit(code)
}

// run returns the program's exit code; an error when there is none.
func run(dir string, args []string) (code int, err error) {
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
	if len(args) == 0 {
		for _, line := range server.Env() {
			fmt.Println("export", line)
		}
		<-ctx.Done()
		return 0, nil
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), server.Env()...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	// The program hears of an interrupt, and may clean up before it is killed.
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
