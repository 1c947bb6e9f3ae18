package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// stopSignals end work in an orderly way. Slurm warns by SIGUSR1 before a job's time is over.
var stopSignals = []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGUSR1}

// leaveSignals leaves all signals to the program that started this one, and that says when it ends.
func leaveSignals() {
	signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2)
}

func stopped(ctx context.Context) bool { return errors.Is(context.Cause(ctx), errSignal) }

// stoppedError returns the error of a command that a signal stopped. It includes err, unless err is
// only the cancellation.
func stoppedError(ctx context.Context, err error, hint string) error {
	if e, ok := errors.AsType[*exitError](err); ok && e.code == exitStopped {
		return err
	}
	cause := context.Cause(ctx)
	if hint != "" {
		cause = fmt.Errorf("%w; %s", cause, hint)
	}
	if !errors.Is(err, errSignal) && !errors.Is(err, context.Canceled) {
		cause = fmt.Errorf("%w: %w", cause, err)
	}
	return &exitError{exitStopped, cause}
}

// errSignal is the cause of a context that a signal canceled.
var errSignal = errors.New("stopped by a signal")
