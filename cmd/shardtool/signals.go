package main

import (
	"os"
	"syscall"
)

// stopSignals end work in an orderly way. Slurm warns by SIGUSR1 before a job's time is over.
var stopSignals = []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGUSR1}
