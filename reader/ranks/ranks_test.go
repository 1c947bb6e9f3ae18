package ranks

import (
	"errors"
	"runtime"
	"strings"
	"testing"
)

func TestFromEnvironment(t *testing.T) {
	slurm := map[string]string{"SLURM_PROCID": "5", "SLURM_NTASKS": "16", "SLURM_LOCALID": "1"}
	torchrun := map[string]string{"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "3", "LOCAL_WORLD_SIZE": "4"}
	for _, c := range []struct {
		name string
		env  []map[string]string
		want Job
		err  string
	}{
		{"slurm", []map[string]string{slurm}, Job{5, 16, 1, 1, "Slurm"}, ""},
		{"torchrun in slurm", []map[string]string{slurm, torchrun}, Job{3, 8, 3, 4, "torchrun"}, ""},
		{"kubernetes", []map[string]string{{"JOB_COMPLETION_INDEX": "2"}}, Job{2, 0, 0, 1, "Kubernetes Indexed Job"}, ""},
		{"a rank without its world", []map[string]string{{"RANK": "3"}}, Job{}, "RANK is \"3\", and WORLD_SIZE is missing"},
		{"a world without a rank", []map[string]string{{"WORLD_SIZE": "8"}}, Job{}, "WORLD_SIZE is \"8\", and RANK is missing"},
		{"a world of one", []map[string]string{{"WORLD_SIZE": "1"}}, Job{}, "neither torchrun"},
		{"one of torchrun's in slurm", []map[string]string{slurm, {"RANK": "3"}}, Job{5, 16, 1, 1, "Slurm"}, ""},
		{"one of torchrun's in kubernetes", []map[string]string{{"JOB_COMPLETION_INDEX": "2", "WORLD_SIZE": "8"}}, Job{2, 0, 0, 1, "Kubernetes Indexed Job"}, ""},
		{"no number", []map[string]string{torchrun, {"RANK": "x"}}, Job{}, `RANK is "x", not a number`},
		{"outside", []map[string]string{torchrun, {"RANK": "8"}}, Job{}, "rank 8 of 8"},
	} {
		got, err := FromEnvironment(func(name string) (value string) {
			for _, set := range c.env {
				if v, ok := set[name]; ok {
					value = v
				}
			}
			return value
		})
		switch {
		case c.err == "" && (err != nil || got != c.want):
			t.Errorf("%s: %+v, %v, want %+v", c.name, got, err, c.want)
		case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
			t.Errorf("%s: %v, want %s", c.name, err, c.err)
		}
		if none := strings.HasPrefix(c.err, "neither"); errors.Is(err, ErrNone) != none {
			t.Errorf("%s: ErrNone is %v", c.name, !none)
		}
	}
}

func TestWorkers(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(16))
	for ranks, want := range map[int]int{-1: 15, 0: 15, 1: 15, 2: 7, 8: 1, 64: 1} {
		if got := Workers(ranks); got != want {
			t.Errorf("%d ranks: %d workers, want %d", ranks, got, want)
		}
	}
}
