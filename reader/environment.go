package reader

import (
	"errors"
	"fmt"
	"strconv"
)

// Ranks is a process's place in a job, as its launcher tells it.
type Ranks struct {
	Rank, World int
	// LocalRank and LocalWorld are the same on this host; 0 and 1 where the launcher does not say.
	LocalRank, LocalWorld int
	// Launcher is where the values come from.
	Launcher string
}

// ErrNoRanks: the environment is that of no launcher we know.
var ErrNoRanks = errors.New("the environment names no rank")

// launchers are asked in this order: torchrun runs inside Slurm and MPI jobs, and knows better
// there.
var launchers = []struct{ name, rank, world, localRank, localWorld string }{
	{"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
	{"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
	{"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", ""},
	{"Kubernetes Indexed Job", "JOB_COMPLETION_INDEX", "", "", ""},
}

// RanksFromEnvironment reads rank and world size from what torchrun, Open MPI, Slurm or a
// Kubernetes Indexed Job set; pass os.Getenv. A Kubernetes Indexed Job does not tell its size:
// World is then 0 and the caller must.
//
// The rank of a launcher counts processes. With tensor, pipeline or context parallelism several
// processes share one data-parallel rank: compute that and pass it yourself.
func RanksFromEnvironment(getenv func(string) string) (r Ranks, err error) {
	number := func(name string, def int) int {
		text := getenv(name)
		if name == "" || text == "" {
			return def
		}
		n, perr := strconv.Atoi(text)
		if (perr != nil || n < 0) && err == nil {
			err = fmt.Errorf("reader: the environment variable %s is %q, not a number", name, text)
		}
		return n
	}
	for _, l := range launchers {
		if getenv(l.rank) == "" || (l.world != "" && getenv(l.world) == "") {
			continue
		}
		r = Ranks{Rank: number(l.rank, 0), World: number(l.world, 0), LocalRank: number(l.localRank, 0), LocalWorld: number(l.localWorld, 1), Launcher: l.name}
		if err == nil && l.world != "" && r.Rank >= r.World {
			err = fmt.Errorf("reader: %s says rank %d of %d", l.name, r.Rank, r.World)
		}
		return r, err
	}
	return r, fmt.Errorf("reader: %w: neither torchrun, Open MPI, Slurm nor a Kubernetes Indexed Job started this process; give rank and world size", ErrNoRanks)
}
