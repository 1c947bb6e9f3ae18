package main

import (
	"os"
	"runtime"
	"sync"

	"github.com/shardtool/shardtool/cmd/shardtool/internal/serve"
	"github.com/shardtool/shardtool/reader/ranks"
)

// share divides the processors and the memory of a server among the programs that it serves.
type share struct {
	host bool // they may be several, the ranks of a host

	mu     sync.Mutex
	memory int64 // of all streams
}

// processors limits the processors of the server to its workers, unless the program says how many,
// and one more for each program, which puts batches together. The rest of the host belongs to the
// training steps.
func (s *share) processors(q *serve.OpenRequest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if os.Getenv("GOMAXPROCS") == "" { // else the user has said it
		runtime.SetDefaultGOMAXPROCS()
	} else {
		runtime.GOMAXPROCS(processors)
	}
	all, local := runtime.GOMAXPROCS(0), q.LocalRanks
	if r, err := ranks.FromEnvironment(q.Getenv); local == 0 && err == nil {
		local = r.LocalWorld
	}
	if q.Workers == 0 {
		q.Workers = ranks.Workers(local)
	}
	programs := 1
	if s.host {
		programs = max(local, 1)
	}
	runtime.GOMAXPROCS(min(max(all, q.Workers), programs*(q.Workers+1)))
}

// limit makes room for the memory of a stream, until the function that it returns is called.
func (s *share) limit(memory int64) (end func()) {
	s.add(memory)
	return func() { s.add(-memory) }
}

func (s *share) add(memory int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.memory += memory; s.memory > 0 {
		limitMemory(s.memory, 0)
	}
}
