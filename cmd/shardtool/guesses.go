package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/shardtool/shardtool/format"
)

// destructive are commands and flags that take bytes away: a word that is none never suggests one.
var destructive = []string{"purge", "prune", "remove", "overwrite", "replace", "generations"}

// meant says what does the work of commands that other programs have.
var meant = map[string]string{
	"merge":    "`shardtool pack A B OUT` joins data sets",
	"concat":   "`shardtool pack A B OUT` joins data sets",
	"split":    "`shardtool pack DATASET TRAIN --share 0%..90%` takes a share; take the rest with --share 90%..100%",
	"check":    "`shardtool verify DATASET` checks every byte, `shardtool doctor DATASET` what training would stumble over",
	"count":    "`shardtool inspect DATASET` counts samples",
	"cp":       "a data set is a folder: copy it with the store's own program; `shardtool stage` fills a cache on the local disk",
	"download": "`shardtool stage DATASET --cache DIR` fills a cache on the local disk",
	"read":     "`shardtool cat DATASET` streams samples, `shardtool head DATASET` shows the first ones",
	"sample":   "`shardtool head DATASET` shows the first samples, `shardtool view DATASET` any of them",
	"stream":   "`shardtool cat DATASET` streams samples",
	"train":    "a training loop reads with shardtool.Loader in Python, or pipes `shardtool cat DATASET`",
	"validate": "`shardtool verify DATASET` checks every byte",
	"write":    "`shardtool pack SRC OUT` makes a data set; programs write with shardtool.Writer in Python",
	"filter":   "`shardtool select DATASET --where EXPR --name NAME` makes a view",
	"extract":  "`shardtool unpack DATASET DIR` writes the fields as files",
	"tail":     "`shardtool ls DATASET` lists keys, `shardtool get DATASET KEY` prints a sample",
	"info":     "`shardtool inspect DATASET` describes a data set",
	"stats":    "`shardtool inspect DATASET` describes a data set",
	"show":     "`shardtool view DATASET` shows samples in a browser, `shardtool head DATASET` in the terminal",
	"delete":   "`shardtool remove DATASET --keys FILE` takes samples out; a data set is a folder like any other",
	"rm":       "`shardtool remove DATASET --keys FILE` takes samples out; a data set is a folder like any other",
	"shuffle":  "`shardtool pack SRC OUT --pack-shuffle SEED` shuffles when packing, `shardtool cat DATASET --shuffle` when reading",
	"create":   "`shardtool pack SRC OUT` makes a data set",
	"convert":  "`shardtool pack SRC OUT` makes a data set of other formats, `shardtool export` writes others",
}

// knownCommand rejects an unknown command, and suggests what does the same or has a similar name.
func knownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint, name := meant[args[0]], args[0]
	if cmd.HasParent() { // a group, such as layer
		name = cmd.Name() + " " + name
		var has []string
		for _, sub := range cmd.Commands() {
			has = append(has, sub.Name())
		}
		hint = "there is " + strings.Join(has, ", ")
	} else if like := slices.DeleteFunc(cmd.SuggestionsFor(name), func(name string) bool { return slices.Contains(destructive, name) }); hint == "" && len(like) > 0 {
		hint = "did you mean " + strings.Join(like, " or ") + "?"
	}
	if hint != "" {
		hint = ": " + hint
	}
	return usagef("no command %q%s; see `%s --help`", name, hint, cmd.CommandPath())
}

// meantFlags has flags of other programs with the flags here that do it, the first that the command
// has.
var meantFlags = map[string][]string{
	"batch-size": {"global-batch"}, "batch": {"global-batch"}, "batchsize": {"global-batch"},
	"shuffle-buffer": {"shuffle-memory"}, "buffer-size": {"shuffle-memory"}, "shuffle-size": {"shuffle-memory"},
	"num-workers": {"workers"}, "jobs": {"workers"}, "threads": {"workers"}, "parallel": {"workers"}, "num-threads": {"workers"},
	"max-samples": {"limit", "samples"}, "count": {"limit", "samples"}, "num-samples": {"limit", "samples"}, "samples": {"limit"},
	"checkpoint": {"checkpoint-in"}, "resume-from": {"checkpoint-in"}, "state": {"checkpoint-in"}, "all": {"deep"}, "full": {"deep"},
	"format": {"as", "json", "stdin-format"}, "type": {"as"}, "output": {"out"}, "dest": {"out"}, "out-dir": {"out"},
	"shard-bytes": {"shard-size"}, "size-limit": {"shard-size"}, "chunk-size": {"shard-size"}, "maxsize": {"shard-size"}, "size": {"shard-size"},
	"maxcount": {"samples-per-shard"}, "max-count": {"samples-per-shard"}, "per-shard": {"samples-per-shard"},
	"compression": {"level"}, "compression-level": {"level"}, "zstd-level": {"level"},
	"columns": {"columns", "fields"}, "select": {"fields", "where"}, "filter": {"where", "include"}, "exclude": {"ignore", "exclude"},
	"num-epochs": {"epochs"}, "num-replicas": {"world-size"}, "nodes": {"world-size"}, "drop-last": {"tail"}, "port": {"listen"}, "host": {"listen"},
	"prefix": {"name"}, "random-seed": {"seed"}, "key-column": {"key"}, "id": {"key"}, "continue": {"resume"}, "dry": {"dry-run"},
}

// noFlag answers flags that need no counterpart.
var noFlag = map[string]string{
	"v": "progress and warnings are shown as they come; --version prints the version", "verbose": "progress and warnings are shown as they come",
	"recursive": "folders are read with all folders in them", "r": "folders are read with all folders in them",
	"o": "the destination is the last argument", "j": "--workers sets the threads", "n": "see --limit, where there is one", "y": "no command asks",
	"yes": "no command asks", "debug": "progress and warnings are shown as they come",
}

// meantFlag says which flag of a command a flag that it lacks may stand for; empty if none.
func meantFlag(cmd *cobra.Command, name string) string {
	for _, n := range meantFlags[name] {
		if cmd.Flags().Lookup(n) != nil {
			return n
		}
	}
	best, distance := "", 3 // of names that differ in more than two places, none is meant
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if d := edits(name, f.Name); d < min(distance, (len(name)+1)/2) && !slices.Contains(destructive, f.Name) && !f.Hidden {
			best, distance = f.Name, d
		}
	})
	return best
}

// edits counts the characters to insert, delete or change to make one text the other (Levenshtein).
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(row[j]+1, diagonal+1, change)
		}
	}
	return row[len(b)]
}

// flagError returns an error that names the wrong flag and what to write.
func flagError(cmd *cobra.Command, err error) error {
	see := fmt.Sprintf("; see `%s --help`", cmd.CommandPath())
	var value *pflag.InvalidValueError
	var unknown *pflag.NotExistError
	switch {
	case errors.As(err, &value):
		f := value.GetFlag()
		return usagef("--%s %q: %s%s", f.Name, value.GetValue(), wanted(f, value.Unwrap()), see)
	case errors.As(err, &unknown) && noFlag[unknown.GetSpecifiedName()] != "":
		return usagef("%w: %s%s", err, noFlag[unknown.GetSpecifiedName()], see)
	case errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() != "":
		return usagef("%w; write -- before a name that begins with a dash%s", err, see)
	case errors.As(err, &unknown):
		if flag := meantFlag(cmd, unknown.GetSpecifiedName()); flag != "" {
			return usagef("%w: did you mean --%s?%s", err, flag, see)
		}
	}
	return usagef("%w%s", err, see)
}

// wanted describes the values that a flag takes.
func wanted(f *pflag.Flag, err error) string {
	switch f.Value.Type() {
	case "int", "int64":
		return "write a whole number"
	case "uint", "uint32", "uint64":
		return "write a whole number, 0 or more"
	case "bool":
		return "write true or false"
	case "duration":
		return "write a duration such as 30s or 5m"
	}
	return err.Error()
}

// refuseFile refuses a file in place of the folder of a data set, and says what it is.
func refuseFile(arg string) error {
	info, err := os.Stat(arg)
	if err != nil || !info.Mode().IsRegular() {
		return nil //nolint:nilerr // a missing folder has an error of its own
	}
	folder, name := filepath.Split(arg)
	if folder == "" {
		folder = "."
	}
	_, err = os.Stat(filepath.Join(folder, format.ManifestName))
	switch packed := err == nil; {
	case packed && strings.HasPrefix(name, "manifest"):
		return usagef("%s is the manifest of the data set %s: name the folder", arg, folder)
	case packed:
		return usagef("%s is a file of the data set %s: name the folder", arg, folder)
	case slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name)):
		return usagef("%s is a mix, and this command takes a data set: inspect, order, cat, explain, view, simulate, bench and stage read mixes", arg)
	case strings.Contains(name, format.TarSuffix):
		return usagef("%s is a tar, and not yet a data set: `shardtool pack %s OUT` makes one, and `shardtool index` one that leaves its tars where they are", arg, arg)
	}
	return usagef("%s is a file, and a data set is a folder: `shardtool pack` makes one", arg)
}
