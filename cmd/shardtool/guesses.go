package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// destructive are commands and flags that take bytes away: a word that is none never suggests one.
var destructive = []string{"purge", "prune", "remove", "overwrite", "replace", "generations"}

const (
	copying  = "a data set is a folder: copy it with any tool, from or to a bucket with `aws s3 sync`; while training, `shardtool cat DATASET --cache DIR` keeps what it reads"
	deleting = "`shardtool remove DATASET KEY` takes a sample out; to delete a whole data set, delete its folder"
)

const (
	generations = "each change makes a generation, which has an address, DATASET@GENERATION: `shardtool inspect DATASET` says which is the newest"
	joining     = "`shardtool pack A B OUT` joins data sets, with `--key-prefix source` those with equal keys; a mix, mix.yaml, reads several by weights"
	counting    = "`shardtool inspect DATASET` counts samples"
	globbing    = "`shardtool ls DATASET 'dog/*'` lists keys, which have no extension, by a glob; `shardtool select DATASET --where EXPR --name NAME` chooses by attributes"
	pruning     = "`shardtool prune DATASET` deletes the files that no kept generation needs; `--dry-run` lists them first"
	checking    = "`shardtool verify DATASET --deep` checks every byte"
	describing  = "`shardtool inspect DATASET` describes a data set"
	making      = "`shardtool pack SRC OUT` makes a data set"
	staging     = "`shardtool stage DATASET --cache DIR` fills a cache before a job"
	optimizing  = "a program in Python writes samples with shardtool.optimize; `shardtool pack SRC OUT` packs files as they are"
	repairing   = "`shardtool verify DATASET --deep` names what is damaged: copy those files again from where the data set came from, or `shardtool pack` them again"
)

// meant says what does the work of commands that other programs have.
var meant = map[string]string{
	"merge":      joining,
	"concat":     joining,
	"join":       joining,
	"split":      "`shardtool pack DATASET TRAIN --share 0%..90%` packs 90 % of the samples, `shardtool pack DATASET VAL --share 90%..100%` the others",
	"check":      "`shardtool verify DATASET --deep` checks every byte, `shardtool doctor DATASET` finds what training would stumble over",
	"count":      counting,
	"wc":         counting,
	"nrows":      counting,
	"checksum":   "`shardtool inspect DATASET` prints the digest of a data set, `shardtool verify DATASET --deep` compares every byte",
	"sql":        "`shardtool export DATASET OUT --as hf` writes Parquet, which duckdb and polars read",
	"peek":       "`shardtool head DATASET` shows the first samples",
	"sort":       "samples keep the order of their sources: `shardtool order DATASET` prints the order of a run",
	"cp":         copying,
	"download":   copying,
	"read":       "`shardtool cat DATASET` streams samples, `shardtool head DATASET` shows the first ones",
	"sample":     "`shardtool head DATASET` shows the first samples, `shardtool view DATASET` any of them",
	"stream":     "`shardtool cat DATASET` streams samples",
	"train":      "a training loop reads with shardtool.Loader in Python, or pipes `shardtool cat DATASET`",
	"validate":   "`shardtool verify DATASET --deep` checks every byte",
	"write":      "`shardtool pack SRC OUT` makes a data set; programs write with shardtool.Writer in Python",
	"filter":     "`shardtool select DATASET --where EXPR --name NAME` makes a view",
	"extract":    "`shardtool unpack DATASET DIR` writes the fields as files",
	"tail":       "`shardtool ls DATASET` lists keys, `shardtool get DATASET KEY` prints a sample",
	"info":       describing,
	"stats":      describing,
	"show":       "`shardtool view DATASET` shows samples in a browser, `shardtool head DATASET` in the terminal, `shardtool get DATASET KEY` one of them",
	"delete":     deleting,
	"rm":         deleting,
	"shuffle":    "`shardtool pack SRC OUT --pack-shuffle SEED` shuffles when packing, `shardtool cat DATASET --shuffle` when reading",
	"create":     making,
	"fsck":       checking,
	"scrub":      checking,
	"lint":       "`shardtool doctor DATASET` finds what training would stumble over",
	"repair":     repairing,
	"fix":        repairing,
	"gc":         pruning,
	"clean":      pruning,
	"vacuum":     pruning,
	"sync":       copying,
	"copy":       copying,
	"upload":     copying,
	"push":       copying,
	"pull":       copying,
	"mv":         copying,
	"dump":       "`shardtool cat DATASET` writes all samples as a tar, with --json as lines; `shardtool unpack DATASET DIR` as files",
	"list":       "`shardtool ls DATASET` lists keys",
	"keys":       "`shardtool ls DATASET` lists keys",
	"schema":     "`shardtool inspect DATASET` lists the fields and what they hold",
	"stat":       describing,
	"diff":       "`shardtool inspect DATASET --against OTHER` compares two data sets",
	"compare":    "`shardtool inspect DATASET --against OTHER` compares two data sets",
	"append":     "`shardtool pack SRC DATASET --append` adds samples",
	"import":     "`shardtool pack SRC OUT` reads files of other formats",
	"convert":    "`shardtool pack SRC OUT` reads files of other formats, `shardtool export DATASET OUT --as FORM` writes them",
	"build":      making,
	"make":       making,
	"prepare":    making,
	"add":        "`shardtool pack SRC DATASET --append` adds samples, `shardtool layer add DATASET NAME TABLE --key COLUMN` fields",
	"open":       "`shardtool view DATASET` shows samples in a browser, `shardtool head DATASET` in the terminal",
	"load":       "`shardtool cat DATASET` streams samples; a training loop reads with shardtool.Loader in Python",
	"describe":   describing,
	"meta":       describing,
	"size":       "`shardtool inspect DATASET` prints numbers and sizes",
	"du":         "`shardtool inspect DATASET` prints numbers and sizes",
	"len":        counting,
	"cache":      staging,
	"warm":       staging,
	"warmup":     staging,
	"prefetch":   staging,
	"benchmark":  "`shardtool bench DATASET` measures what training would wait for",
	"profile":    "`shardtool bench DATASET` measures what training would wait for",
	"test":       "`shardtool verify DATASET --deep` checks every byte, `shardtool bench DATASET` measures speed",
	"mix":        "a mix is a file, mix.yaml, that names data sets and their weights: `shardtool cat mix.yaml` reads it, `shardtool inspect mix.yaml` describes it",
	"blend":      "a mix is a file, mix.yaml, that names data sets and their weights: `shardtool cat mix.yaml` reads it, `shardtool inspect mix.yaml` describes it",
	"subset":     "`shardtool select DATASET --where EXPR --name NAME` makes a view, `shardtool pack DATASET OUT --where EXPR` a copy",
	"query":      "`shardtool select DATASET --where EXPR --name NAME` makes a view",
	"search":     globbing,
	"find":       globbing,
	"grep":       globbing,
	"reshard":    "`shardtool pack DATASET OUT --shard-size 64MiB` cuts a data set into other shards",
	"repack":     "`shardtool pack DATASET OUT` packs a data set again",
	"rechunk":    "`shardtool pack DATASET OUT --shard-size 64MiB` cuts a data set into other shards",
	"rename":     "`shardtool pack DATASET OUT --rename txt=caption.txt` renames a field; a data set is a folder, which any tool renames",
	"dedup":      "`shardtool select DATASET --without-keys FILE --name NAME` leaves out samples whose keys you have found",
	"tokenize":   tokenizing,
	"preprocess": optimizing,
	"process":    optimizing,
	"optimize":   optimizing,
	"map":        "a program in Python writes samples with shardtool.optimize, fields with shardtool.annotate",
	"annotate":   "`shardtool layer add DATASET NAME TABLE --key COLUMN` adds fields; a program in Python computes them with shardtool.annotate",
	"plot":       "`shardtool inspect DATASET` prints the sizes of fields as bars, `shardtool view DATASET` shows samples in a browser",
	"report":     "`shardtool inspect DATASET` describes a data set, `shardtool bench DATASET` its speed",
	"config":     "there is no configuration: flags and the environment have all",
	"init":       "there is nothing to set up: `shardtool pack SRC OUT` makes a data set",
	"login":      "credentials are found as other programs find them: `shardtool doctor s3://bucket/prefix` says which",
	"auth":       "credentials are found as other programs find them: `shardtool doctor s3://bucket/prefix` says which",
	"update":     "`shardtool pack SRC DATASET --append` adds samples, `--overwrite` replaces them; a layer changes fields: `shardtool layer add DATASET NAME TABLE --key COLUMN --update`",
	"edit":       "a layer changes fields: `shardtool layer add DATASET NAME TABLE --key COLUMN --replaces FIELD`",
	"history":    "`shardtool inspect DATASET` says how it was packed",
	"log":        "`shardtool inspect DATASET` says how it was packed",
	"status":     "`shardtool inspect DATASET` describes a data set, `shardtool missing DATASET --parts N` the parts of a pack",
	"clone":      copying,
	"move":       copying,
	"mount":      "`shardtool unpack DATASET DIR` writes the fields as files, `shardtool view DATASET` shows samples in a browser",
	"tag":        generations, "rollback": generations, "revert": generations, "checkout": generations, "snapshot": generations, "restore": generations,
	"resume": "`shardtool pack SRC OUT --resume` continues a pack, `shardtool cat DATASET --checkpoint-in FILE` a stream",
}

// knownCommand rejects an unknown command, and suggests what does the same or has a similar name.
func knownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	name := strings.ToLower(args[0])
	hint := meant[name]
	like := slices.DeleteFunc(cmd.SuggestionsFor(name), func(like string) bool { // a short name resembles many
		return !strings.HasPrefix(like, name) && edits(name, like) > max(1, len(name)/2)
	})
	mild := slices.DeleteFunc(slices.Clone(like), func(name string) bool { return slices.Contains(destructive, name) })
	if cmd.HasParent() { // a group, such as layer
		name = cmd.Name() + " " + name
		hint = fmt.Sprintf("`%s` has %s", cmd.CommandPath(), commandsOf(cmd))
	} else if hint == "" && (strings.ContainsAny(name, "./:")) {
		hint = fmt.Sprintf("a command comes first, as in `shardtool inspect %s` or `shardtool pack %[1]s OUT`", name)
	} else if hint == "" && len(mild) > 0 {
		hint = "did you mean " + strings.Join(mild, " or ") + "?"
	} else if hint == "" && len(like) == 1 && edits(name, like[0]) == 1 {
		return usagef("no command %q: `%s` deletes data: see `shardtool %[2]s --help`", name, like[0])
	}
	if hint == "" { // the words of a name, such as split-dataset
		for word := range strings.SplitSeq(name, "-") {
			hint = cmp.Or(hint, meant[word])
		}
	}
	if hint == "" {
		hint = "the commands are " + commandsOf(cmd)
	}
	if !cmd.HasParent() {
		name = args[0]
	}
	return usagef("no command %q%s", name, hinted(cmd, hint))
}

// commandsOf lists the commands below a command, but hidden ones.
func commandsOf(cmd *cobra.Command) string {
	var all []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			all = append(all, sub.Name())
		}
	}
	return strings.Join(all, ", ")
}

// hinted is a hint, which may be empty, and where to read more.
func hinted(cmd *cobra.Command, hint string) string {
	see := fmt.Sprintf("see `%s --help`", cmd.CommandPath())
	switch {
	case hint == "":
		return "; " + see
	case strings.HasSuffix(hint, "?"):
		return ": " + hint + " S" + see[1:]
	}
	return ": " + hint + "; " + see
}

// meantFlags has flags of other programs with the flags here that do it, the first that the command
// has.
var meantFlags = map[string][]string{
	"batch-size": {"global-batch"}, "batch": {"global-batch"}, "batchsize": {"global-batch"},
	"shuffle-buffer": {"shuffle-memory"}, "buffer-size": {"shuffle-memory"}, "shuffle-size": {"shuffle-memory"},
	"num-workers": {"workers"}, "jobs": {"workers"}, "threads": {"workers"}, "parallel": {"workers"}, "num-threads": {"workers"},
	"max-samples": {"limit", "samples"}, "count": {"limit", "samples"}, "num-samples": {"limit", "samples"}, "samples": {"limit"},
	"n": {"limit"}, "l": {"limit", "long"},
	"checkpoint": {"checkpoint-in"}, "resume-from": {"checkpoint-in"}, "state": {"checkpoint-in"}, "all": {"deep"}, "full": {"deep"},
	"format": {"as", "json", "stdin-format"}, "type": {"as"}, "output": {"out"}, "dest": {"out"}, "out-dir": {"out"},
	"shard-bytes": {"shard-size"}, "size-limit": {"shard-size"}, "chunk-size": {"shard-size"}, "max-size": {"shard-size"}, "max-shard-size": {"shard-size"}, "maxsize": {"shard-size"}, "size": {"shard-size"},
	"maxcount": {"samples-per-shard"}, "max-count": {"samples-per-shard"}, "per-shard": {"samples-per-shard"},
	"compression-level": {"level"}, "zstd-level": {"level"},
	"columns": {"columns", "fields"}, "select": {"fields", "where"}, "filter": {"where", "include"}, "exclude": {"ignore", "exclude"},
	"num-epochs": {"epochs"}, "num-replicas": {"world-size"}, "nodes": {"world-size"}, "drop-last": {"tail"}, "port": {"listen"}, "host": {"listen"},
	"prefix": {"name"}, "random-seed": {"seed"}, "key-column": {"key"}, "on": {"key"}, "id": {"key"}, "id-field": {"key"}, "dtype": {"token-dtype"}, "gpus": {"world-size"}, "world": {"world-size"}, "cache-dir": {"cache"},
	"seconds": {"duration"}, "time": {"duration"}, "steps": {"batches"}, "index": {"number"}, "older-than": {"grace"}, "from": {"checkpoint-in"},
	"step-time": {"samples-per-second"}, "num-parts": {"parts"}, "shard": {"part", "shard"}, "continue": {"resume"}, "dry": {"dry-run"}, "shuffle": {"pack-shuffle"}, "seed": {"pack-shuffle"}, "o": {"out"}, "C": {"out"}, "d": {"out"},
}

// takenBy says what a flag in meantFlags takes, where that differs from what the other program's
// takes.
var takenBy = map[string]string{
	"pack-shuffle": ", a seed such as 7", "global-batch": ", the samples of a batch over all ranks",
	"shuffle-memory": ", a size such as 1GiB",
	"keys":           ", a file with one key in each line",
	"world-size":     ", the number of ranks",
	"duration":       ", such as 5s",
	"grace":          ", such as 168h",
	"listen":         ", a host and port such as 127.0.0.1:8080",
}

const (
	alwaysShown  = "progress and warnings are always shown, so leave it out"
	readsAll     = "a folder is read with all folders below it, so leave it out"
	lastArgument = "the destination is the last argument"
	compressed   = "zstd compresses the shards; --level chooses how well, and --format tar leaves it out"
	repaired     = "what checks only reads: copy what it names again from where the data set came from, or pack it again"
)

// noFlag answers flags that need no counterpart.
var noFlag = map[string]string{
	"v": alwaysShown + "; --version prints the version", "verbose": alwaysShown, "debug": alwaysShown,
	"recursive": readsAll, "r": readsAll,
	"compression": compressed,
	"j":           "--workers sets the threads",
	"y":           "no command asks",
	"yes":         "no command asks",
	"q":           quietly,
	"h":           "--help prints what the command does",
	"compress":    compressed, "codec": compressed, "no-compression": compressed, "no-compress": compressed,
	"repair": repaired, "fix": repaired,
	"progress": alwaysShown, "color": "output has no colours",
}

// answer says what to do in place of a flag that a command lacks; empty if that is not known.
func answer(cmd *cobra.Command, name string) string {
	if dashed := strings.ReplaceAll(name, "_", "-"); dashed != name && cmd.Flags().Lookup(dashed) != nil {
		return fmt.Sprintf("did you mean --%s?", dashed)
	} else if dashed != name {
		return answer(cmd, dashed)
	}
	switch {
	case noFlag[name] != "":
		return noFlag[name]
	case slices.Contains(meantFlags[name], "out") && takesPlace(cmd):
		return lastArgument
	case flagWords[cmd.Name()+" "+name] != "": // also where a flag is called nearly so
		return flagWords[cmd.Name()+" "+name]
	case cmd.Name() == "ls" && slices.Contains(meantFlags[name], "limit"):
		return firstLines
	case name == "dry-run" && cmd.Name() == "pack":
		return "`shardtool doctor SRC` reads the source and writes nothing"
	case name == "dry-run":
		return "prune and remove have one"
	case name == "o" && cmd.Flags().Lookup("out") == nil:
		return redirecting
	case cmd.Flags().Lookup("overwrite") != nil && (name == "force" || name == "f" || edits(name, "overwrite") < 3):
		return "--overwrite replaces the data set that is there"
	}
	like, same := typo(cmd, name), meantFlag(cmd, name)
	if _, known := meantFlags[name]; same == "" && (like == "" || edits(name, like) > max(1, len(name)/5) && !known) {
		if text := byWords(cmd, name); text != "" {
			return text
		}
	}
	if flag := cmp.Or(same, like); flag != "" {
		return fmt.Sprintf("did you mean --%s%s?", flag, takenBy[flag])
	}
	return ""
}

// flagsOf lists the flags in the help of a command, empty if these are too many for a line or two.
func flagsOf(cmd *cobra.Command) string {
	const most = 40
	all := shownFlags(cmd, func(name string) bool { return name != "help" })
	if len(all) == 0 || len(all) > most {
		return ""
	}
	return "it has " + strings.Join(all, ", ")
}

// shownFlags are the flags in the help of a command whose names take chooses.
func shownFlags(cmd *cobra.Command, take func(name string) bool) (all []string) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if take(f.Name) && inHelp(cmd, f) {
			all = append(all, "--"+f.Name)
		}
	})
	return all
}

// meantFlag says which flag of a command a flag that it lacks may stand for; empty if none.
func meantFlag(cmd *cobra.Command, name string) string {
	for _, n := range meantFlags[name] {
		if cmd.Flags().Lookup(n) != nil {
			return n
		}
	}
	return ""
}

// typo is the flag of a command whose name differs from name in a few places; empty if there is
// none.
func typo(cmd *cobra.Command, name string) string {
	best, distance := "", 3 // of names that differ in more than two places, none is meant
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if d := edits(name, f.Name); d < min(distance, (len(name)+1)/2) && !slices.Contains(destructive, f.Name) &&
			!f.Hidden {
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
	see := hinted(cmd, "")
	var value *pflag.InvalidValueError
	var unknown *pflag.NotExistError
	var bare *pflag.ValueRequiredError
	switch {
	case errors.As(err, &value):
		f := value.GetFlag()
		return usagef("--%s %q: %s%s", f.Name, value.GetValue(), wanted(f, value.Unwrap()), see)
	case errors.As(err, &bare):
		f := bare.GetFlag()
		return usagef("--%s needs a value: %s%s", f.Name, wanted(f, errors.New("write it after the flag")), see)
	case errors.As(err, &unknown):
		if cmd.HasSubCommands() && cmd.Flags().NArg() > 0 { // a word before it, which is no command
			return knownCommand(cmd, cmd.Flags().Args())
		}
		name, dashes := unknown.GetSpecifiedName(), "--"
		hint := answer(cmd, name)
		if cmd.HasSubCommands() && hint == "" {
			hint = "flags come after the command, as in `shardtool inspect DATASET --json`"
		}
		if unknown.GetSpecifiedShortnames() != "" {
			dashes = "-"
			if cmd.Flags().ShorthandLookup("n") != nil && name >= "0" && name <= "9" {
				hint = "write -n " + name
			}
			hint = cmp.Or(hint, longFlag(cmd, unknown.GetSpecifiedShortnames()), initial(cmd, name), "flags are words, such as --help; -- goes before a name that begins with a dash")
		}
		return usagef("unknown flag: %s%s%s", dashes, name, hinted(cmd, cmp.Or(hint, flagsOf(cmd))))
	}
	return usagef("%w%s", err, see)
}

// longFlag answers a word after a single dash: the name of a flag, as Go programs take it, or a level, as
// gzip and zstd do. It is empty for another word.
func longFlag(cmd *cobra.Command, word string) string {
	name, _, _ := strings.Cut(word, "=")
	if _, err := strconv.Atoi(name); err == nil && cmd.Flags().Lookup("level") != nil {
		return "--level is fastest, default, better or best"
	}
	if len(name) > 1 && cmd.Flags().Lookup(name) != nil {
		return fmt.Sprintf("did you mean --%s?", name)
	}
	return ""
}

// initial answers a letter after a dash: the flags that begin with it. It is empty if these are none
// or many.
func initial(cmd *cobra.Command, letter string) string {
	const most = 5
	all := shownFlags(cmd, func(name string) bool {
		return strings.HasPrefix(name, strings.ToLower(letter)) && !slices.Contains(destructive, name)
	})
	if len(all) == 0 || len(all) > most {
		return ""
	}
	return "did you mean " + strings.Join(all, " or ") + "?"
}

// longDash refuses an argument that begins with the long dash that text programs make of hyphens,
// before the name of a flag.
func longDash(cmd *cobra.Command, args []string) error {
	for _, arg := range args {
		const long = "\u2012\u2013\u2014\u2015\u2212"
		word := strings.TrimLeft(arg, "-"+long)
		name, _, _ := strings.Cut(word, "=")
		if strings.ContainsAny(strings.TrimSuffix(arg, word), long) && cmd.Flags().Lookup(name) != nil {
			return usagef("%s begins with a long dash: write two hyphens, --%s", arg, name)
		}
	}
	return nil
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
		return "write a duration such as 30s, 5m or 168h"
	}
	return err.Error()
}
