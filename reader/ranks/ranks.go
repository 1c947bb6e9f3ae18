// Package ranks finds out which data-parallel rank a process is: from the variables that the
// launcher of a training job sets, so that a program need not be told.
package ranks

import (
	"errors"
	"fmt"
	"runtime"
	"strconv"
)

// Job is the place of a process in a job.
type Job struct {
	Rank, World int
	// LocalRank and LocalWorld are the same on this host; 0 and 1 where the launcher does not set
	// them.
	LocalRank, LocalWorld int
	// Launcher is the name of the launcher.
	Launcher string
}

// ErrNone: no known launcher set the environment.
var ErrNone = errors.New("the environment names no rank")

// launchers are in the order in which they are looked for: torchrun runs inside Slurm and MPI jobs,
// and its ranks are then the right ones.
var launchers = []struct{ name, rank, world, localRank, localWorld string }{
	{"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
	{"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
	{"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", ""},
	{"Kubernetes Indexed Job", "JOB_COMPLETION_INDEX", "", "", ""},
}

// FromEnvironment reads rank and world size from the variables of torchrun, Open MPI, Slurm or a
// Kubernetes Indexed Job. Pass os.Getenv. The environment of a Kubernetes Indexed Job does not have
// its size: World is then 0, and the caller must set it. The error wraps ErrNone where none of them
// started the process. It does not where there is one of RANK and WORLD_SIZE: the other is missing,
// unless the world has one rank.
//
// The rank of a launcher counts processes. With tensor, pipeline or context parallelism several
// processes share one data-parallel rank: compute that rank instead.
func FromEnvironment(getenv func(string) string) (r Job, err error) {
	number := func(name string, def int) int {
		text := getenv(name)
		if name == "" || text == "" {
			return def
		}
		n, perr := strconv.Atoi(text)
		if (perr != nil || n < 0) && err == nil {
			err = fmt.Errorf("the environment variable %s is %q, not a number", name, text)
		}
		return n
	}
	for _, l := range launchers {
		if getenv(l.rank) == "" || (l.world != "" && getenv(l.world) == "") {
			continue
		}
		r = Job{Rank: number(l.rank, 0), World: number(l.world, 0), LocalRank: number(l.localRank, 0),
			LocalWorld: number(l.localWorld, 1), Launcher: l.name}
		if err == nil && l.world != "" && r.Rank >= r.World {
			err = fmt.Errorf("%s says rank %d of %d", l.name, r.Rank, r.World)
		}
		return r, err
	}
	// One variable of torchrun's pair would make each process rank 0 of 1, which reads everything.
	if rank, world := getenv("RANK"), getenv("WORLD_SIZE"); rank != "" {
		return r, fmt.Errorf("the environment variable RANK is %q, and WORLD_SIZE is missing: set it to the number of ranks, or give rank and world size", rank)
	} else if world != "" && world != "1" {
		return r, fmt.Errorf("the environment variable WORLD_SIZE is %q, and RANK is missing: set it to the rank of this process, or give rank and world size", world)
	}
	return r, fmt.Errorf("%w: neither torchrun, Open MPI, Slurm nor a Kubernetes Indexed Job started this process; give rank and world size", ErrNone)
}

// Workers returns how many workers (reader.Tuning.Workers) one of several ranks on a host should
// use: the CPUs this process may use, less one for the training step of each rank, divided by the
// ranks; at least 1.
func Workers(localRanks int) int {
	localRanks = max(localRanks, 1)
	return max(1, (runtime.GOMAXPROCS(0)-localRanks)/localRanks)
}
