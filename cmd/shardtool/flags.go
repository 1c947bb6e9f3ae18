package main

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"os"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/objstore/cache"
)

// sizeFlag is a number of bytes written 64MiB, 1GB or 4096.
type sizeFlag int64

func (s *sizeFlag) String() string {
	return strings.ReplaceAll(strings.Replace(humanize.IBytes(uint64(*s)), ".0 ", " ", 1), " ", "")
}
func (s *sizeFlag) Type() string { return "size" }
func (s *sizeFlag) Set(v string) error {
	if strings.Contains(v, ",") { // which humanize drops: 1,5GB would be 15 GB
		return errors.New("write 64MiB, 1.5GB or a number of bytes, without a comma")
	}
	n, err := humanize.ParseBytes(v)
	if err != nil || n > math.MaxInt64 {
		return errors.New("write 64MiB, 1GB or a number of bytes")
	}
	*s = sizeFlag(n)
	return nil
}

func sizeVar(cmd *cobra.Command, p *int64, name string, def int64, usage string) {
	*p = def
	cmd.Flags().Var((*sizeFlag)(p), name, usage)
}

// limitFlag is a number, or a share written 0.1%.
type limitFlag struct {
	n     int64
	share float64
}

func (l *limitFlag) String() string {
	if l.share > 0 {
		return strconv.FormatFloat(l.share*100, 'g', -1, 64) + "%"
	}
	return strconv.FormatInt(l.n, 10)
}
func (l *limitFlag) Type() string { return "N|P%" }
func (l *limitFlag) Set(v string) error {
	if p, ok := strings.CutSuffix(v, "%"); ok {
		f, err := strconv.ParseFloat(p, 64)
		if err != nil || f <= 0 || f > 100 {
			return errors.New("write a number, or a percentage such as 0.1%")
		}
		*l = limitFlag{share: f / 100}
		return nil
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n < 0 {
		return errors.New("write a number, or a percentage such as 0.1%")
	}
	*l = limitFlag{n: n}
	return nil
}

// warnings logs what stores report that is not an error.
var warnings = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))

// limitMemory sets the limit of the garbage collector to budget, more and memory for the program.
// more is what the budget does not cover, such as the memory of encoders. GOMEMLIMIT takes
// precedence.
func limitMemory(budget, more int64) {
	if os.Getenv("GOMEMLIMIT") == "" {
		const rest = 32 << 20 // program, stacks, index of a shard
		debug.SetMemoryLimit(budget + rest + more)
	}
}

// minMemory is the least --memory: one block of the default size.
const minMemory = 1 << 20

// checkPatterns refuses texts that are no globs. place is before them in the message: a flag, or
// nothing.
func checkPatterns(place string, globs []string) error {
	for _, g := range globs {
		if !doublestar.ValidatePattern(g) {
			return usagef("%s%q is not a pattern: write one such as '*.jpg' or 'dog/**', with \\ before a [ of a name",
				place, g)
		}
	}
	return nil
}

// choose reports whether the value of a flag that takes two words is the second one.
func choose(flag, value, first, second string) (bool, error) {
	if value != first && value != second {
		return false, usagef("--%s %q: use %s or %s", flag, value, first, second)
	}
	return value == second, nil
}

// addDuplicates adds the flag that keepDuplicates reads.
func addDuplicates(cmd *cobra.Command, value *string) {
	cmd.Flags().StringVar(value, "duplicate-keys", "fail", "a key that is in another shard too: fail or keep")
}

func keepDuplicates(value string) (bool, error) {
	return choose("duplicate-keys", value, "fail", "keep")
}

// checkRun checks the flags that most commands share.
func checkRun(memory int64, workers int) error {
	if memory < minMemory {
		return usagef("--memory %v: give 1MiB or more", (*sizeFlag)(&memory))
	}
	if workers < 0 || workers > 4096 {
		return usagef("--workers %d: give 1 to 4096, or 0 for the CPUs this process may use", workers)
	}
	return nil
}

type cacheKey struct{}

// cacheOf returns the cache of a context, or nil.
func cacheOf(ctx context.Context) *cache.Cache {
	c, _ := ctx.Value(cacheKey{}).(*cache.Cache)
	return c
}
