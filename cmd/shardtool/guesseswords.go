package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
)

const (
	sourcesFirst = "sources are the first arguments, and the data set is the last: `shardtool pack SRC DATASET`"
	dividing     = "pack all, then `shardtool pack DATASET TRAIN --share 0%..90%` takes 90 % of the samples, and `shardtool pack DATASET VAL --share 90%..100%` the others"
	changing     = "fields are stored as they are; a program in Python writes changed ones with shardtool.Writer or shardtool.optimize"
	tokenizing   = "a program in Python writes token ids with shardtool.optimize, which `shardtool pack DATASET OUT --pack-tokens 8192 --separator ID` joins"
	shardSizes   = "the number of shards follows from --shard-size 256MiB, or --samples-per-shard 1000"
	classes      = "--class-field cls adds the number of the first folder as a field, and --attr label=COLUMN keeps a column in the index"
	fieldsOf     = "--columns a,b takes these columns as fields, and --rename COLUMN=NAME gives a field another name"
	continuing   = "--checkpoint-in FILE continues where --checkpoint-out FILE ended, and --skip-steps A-B leaves out steps"
	redirecting  = "`> FILE` keeps what a command prints"
	described    = "`shardtool inspect DATASET` prints fields, types and sizes"
	everyByte    = "--deep compares every byte, and without it sizes and indexes are compared"
	firstKeys    = "`shardtool ls DATASET | head -5 > keys.txt` writes the first keys, which --keys keys.txt takes"
	checksummed  = "each block has a checksum, which every reader compares, so leave it out"
	noConfig     = "there is no file of options: write them as flags"
	asParts      = "--part I --parts N packs one of N parts on each machine"
	someSamples  = "-n 3 shows three samples"
	packTokens   = "--pack-tokens 8192 makes samples of so many tokens"
	inspectHas   = "inspect prints fields, types and sizes without a flag"
	quietly      = "--quiet prints warnings and errors alone, where a command has it"
	separating   = "--separator ID puts this token behind each document, with --pack-tokens"
	firstLines   = "`| head` shows the first lines"
	chosenKeys   = "`shardtool select DATASET --where EXPR --name NAME` makes a view, and `shardtool ls 'DATASET#NAME'` lists its keys"
	aShare       = "`shardtool pack DATASET OUT --share 0%..10%` takes a share of the samples; `shardtool ls DATASET | shuf -n 100` draws keys, which --keys FILE takes"
	columnsApart = "--delimiter ';' says what separates columns"
	taking       = "pack takes all samples of its sources: `sed -n 11,60p rows.jsonl | shardtool pack - OUT --stdin-format jsonl` takes some lines"
	listed       = "`tar -cf - -T LIST | shardtool pack - OUT` packs the files that a list names, which must have those of a sample together"
	contentOf    = "cat writes a tar, `shardtool cat DATASET | tar -xO` its fields; --json prints a line for each sample, with its key and place; `shardtool export --as hf` writes Parquet"
	byNumber     = "`shardtool get DATASET KEY` prints one sample, `shardtool get DATASET --number 10` by its place; --limit 10 stops after ten"
	including    = "--include '*.jpg' and --exclude choose files by their names, --where 'score>3' rows by their columns"
)

// flagWords answers words in the names of flags that no command has, by the command and the words,
// or by the words alone. Of several in a name the longest counts.
var flagWords = map[string]string{
	"pack input": sourcesFirst, "pack src": sourcesFirst, "pack source": sourcesFirst, "pack in": sourcesFirst, "pack data": sourcesFirst,
	"pack path": sourcesFirst, "pack dir": sourcesFirst, "pack root": sourcesFirst,
	"pack files from": listed, "pack from": listed, "pack from file": listed, "pack list": listed, "pack file list": listed, "pack t": listed, "pack T": listed,
	"pack dtype": "--raw-dtype uint16 says what the ids of a .bin are, --token-dtype how they are stored", "pack sep": columnsApart,
	"pack sample rate": changing, "pack key field": "--key id names the column of keys", "pack partition": classes, "pack max shard": shardSizes,
	"pack take": taking, "pack offset": taking, "pack first": taking, "pack hashes": checksummed,
	"view name": "`shardtool select DATASET --where EXPR --name NAME` makes a view", "verify source": "pack the source again: `shardtool inspect DATASET --against OTHER` compares",
	"export flatten": "`shardtool unpack DATASET DIR` writes the fields as files", "unpack flatten": "files have the names of their samples, with folders",
	"cat format": contentOf, "cat as": contentOf, "cat range": byNumber, "cat number": byNumber, "cat index": byNumber, "cat key": byNumber,
	"pack zstd": compressed, "pack gzip": compressed, "pack encoding": compressed, "pack compressor": compressed,
	"pack shards": shardSizes, "pack chunks": shardSizes, "pack files": including,
	"pack ext": including, "pack extension": including, "pack extensions": including, "pack glob": including, "pack pattern": including,
	"pack filter": including, "pack suffix": including,
	"pack label": classes, "pack labels": classes, "pack class": classes, "pack classes": classes, "pack label column": classes,
	"pack resize": changing, "pack quality": changing, "pack transform": changing, "pack augment": changing, "pack crop": changing,
	"pack image size":   changing,
	"pack image column": fieldsOf, "pack text column": fieldsOf, "pack text field": fieldsOf, "pack text key": fieldsOf, "pack json keys": fieldsOf,
	"pack column": fieldsOf, "pack field": fieldsOf, "pack fields": fieldsOf, "pack content": fieldsOf, "pack caption": fieldsOf, "pack keys": fieldsOf,
	"split": dividing, "val": dividing, "train": dividing, "test": dividing, "ratio": dividing, "fraction": dividing, "holdout": dividing,
	"pack limit": "pack takes all samples of its sources: name fewer, or " + dividing, "pack max": "pack takes all samples of its sources: name fewer, or " + dividing,
	"progress": quietly, "log": quietly,
	"silent": quietly,
	"config": noConfig, "yaml": noConfig, "settings": noConfig,
	"pack rank": asParts, "pack world size": asParts, "pack nodes": asParts, "pack node": asParts, "pack tasks": asParts, "pack job": asParts,
	"tokenizer": tokenizing, "vocab": tokenizing, "tokenize": tokenizing,
	"pack seq": packTokens, "pack sequence": packTokens,
	"pack context": packTokens, "pack max length": packTokens,
	"pack eos": separating, "pack bos": separating,
	"pack skip": "--on-error skip leaves out samples that cannot be read, and counts them", "pack ignore": "--on-error skip leaves out samples that cannot be read, and counts them",
	"processes": "--workers sets the threads, where a command has it", "cores": "--workers sets the threads, where a command has it",
	"pack eod": separating, "head rows": someSamples, "unpack keys": "--include 'KEY.*' chooses them",
	"unpack key": "--include 'KEY.*' chooses them", "get key": "the key is the second argument: `shardtool get DATASET KEY`",
	"skip": continuing, "start": continuing, "offset": continuing, "from": continuing, "cat resume": continuing, "continue": continuing,
	"inspect schema": inspectHas, "inspect fields": inspectHas,
	"inspect columns": inspectHas, "inspect stats": inspectHas,
	"select view": "--name gives the view its name", "select limit": firstKeys, "select n": firstKeys, "select count": firstKeys, "select sample": aShare, "select fraction": aShare, "select samples": firstKeys,
	"ls l": "--long prints the sizes of fields", "ls fields": described, "ls columns": described, "ls size": "--long prints the sizes of fields", "ls keys": "ls prints the keys without a flag",
	"ls recursive": "ls prints all keys without a flag", "ls prefix": "globs choose keys: `shardtool ls DATASET 'dog/*'`",
	"ls filter": "globs choose keys: `shardtool ls DATASET 'dog/*'`", "ls where": chosenKeys,
	"ls limit": firstLines, "ls max": firstLines, "ls first": firstLines,
	"checksum": everyByte, "checksums": everyByte, "hash": everyByte, "crc": everyByte, "quick": everyByte, "fast": everyByte,
	"shallow": everyByte, "strict": everyByte, "thorough": everyByte,
	"export to":  "--as FORM chooses what is written: tar, wids, hf (Parquet) and more, which `shardtool export --help` describes",
	"export for": "--as FORM chooses what is written: tar, wids, hf (Parquet) and more, which `shardtool export --help` describes",
	"head lines": someSamples, "head limit": someSamples, "head count": someSamples,
	"head num": someSamples, "head number": someSamples,
	"remove key":    "keys are arguments, `shardtool remove DATASET KEY`, and --keys names a file with one in each line",
	"remove where":  chosenKeys + " for --keys -",
	"remove filter": "a view leaves samples out and removes none: `shardtool select DATASET --where EXPR --name NAME`",
	"device":        "the command line has no GPU: shardtool.Image(224, decode=\"cuda\") in Python decodes on one",
	"gpu":           "the command line has no GPU: shardtool.Image(224, decode=\"cuda\") in Python decodes on one",
	"region":        "the environment has it: AWS_REGION", "endpoint": "the environment has it: AWS_ENDPOINT_URL_S3",
	"no sign request": "add ?anonymous=true to the address of a public bucket", "anonymous": "add ?anonymous=true to the address of a public bucket",
	"view":    "a view has an address: 'DATASET#VIEW'",
	"profile": "the environment has it: AWS_PROFILE", "token": "the environment has it, as for other programs: HF_TOKEN, AWS_SESSION_TOKEN",
}

// placeWords are words for the place that a command writes to.
var placeWords = map[string]bool{"out": true, "output": true, "dst": true, "dest": true, "destination": true, "target": true, "to": true, "save": true, "file": true}

// byWords answers a flag by the words in its name; empty if none is known.
func byWords(cmd *cobra.Command, name string) string {
	words := strings.FieldsFunc(strings.ToLower(name), func(r rune) bool { return r == '-' || r == '_' })
	for n := len(words); n > 0; n-- {
		for at := range len(words) - n + 1 {
			run := strings.Join(words[at:at+n], " ")
			flag := strings.Join(words[at:at+n], "-")
			if f := cmd.Flags().Lookup(flag); f != nil && n > 1 && n < len(words) && !f.Hidden && !slices.Contains(destructive, flag) {
				return fmt.Sprintf("did you mean --%s?", flag)
			}
			if text := flagWords[cmd.Name()+" "+run]; text != "" {
				return text
			}
			switch text := flagWords[run]; {
			case text == everyByte && cmd.Flags().Lookup("deep") == nil:
				return checksummed
			case text != "" && (text != continuing || cmd.Flags().Lookup("checkpoint-in") != nil):
				return text
			}
		}
	}
	if len(words) == 0 || !placeWords[words[0]] || cmd.Flags().Lookup("out") != nil {
		return ""
	}
	if takesPlace(cmd) {
		return lastArgument
	}
	return redirecting
}

// takesPlace reports whether the last argument of a command is where it writes.
func takesPlace(cmd *cobra.Command) bool {
	return strings.HasSuffix(cmd.Use, " OUT") || strings.HasSuffix(cmd.Use, " DIR") || cmd.Name() == "pack"
}

// arguments answers arguments that a command does not take; empty if it knows no better than the
// usage.
func arguments(cmd *cobra.Command, args []string) string {
	if cmd.Name() == "serve" && len(args) == 1 {
		return fmt.Sprintf("it is for programs: shardtool.Loader in Python reads a data set, and `shardtool view %s` shows it in a browser", args[0])
	}
	if len(args) < 2 {
		return ""
	}
	rest := args[1]
	switch cmd.Name() {
	case "head":
		if _, err := strconv.ParseUint(rest, 10, 64); err != nil {
			return fmt.Sprintf("`shardtool get %s %s` prints one sample", args[0], rest)
		}
		return fmt.Sprintf("write `shardtool head %s -n %s`", args[0], rest)
	case "inspect":
		return fmt.Sprintf("`shardtool inspect %s --against %s` compares two data sets", args[0], rest)
	case "get":
		if len(args) == 3 {
			return fmt.Sprintf("a field follows its key and a dot: `shardtool get %s %s.%s`", args[0], rest, args[2])
		}
	case "select":
		return "write `shardtool select DATASET --where EXPR --name NAME`"
	case "verify", "ls", "stage", "bench", "simulate", "order", "cat", "view", "explain":
		for _, flag := range []string{"shuffle", "host"} { // switches, which take no value
			if f := cmd.Flags().Lookup(flag); f == nil || !f.Changed {
				continue
			} else if flag == "shuffle" {
				return fmt.Sprintf("--shuffle is a switch: write `--shuffle --seed %s`", rest)
			}
			return "--host is a switch, for one reader a host" + map[bool]string{true: "; --listen HOST:PORT is where it listens"}[cmd.Name() == "view"]
		}
		if cmd.Name() == "stage" {
			return fmt.Sprintf("write `shardtool stage %s --cache %s`", args[0], rest)
		}
		if _, err := os.Stat(rest); cmd.Name() == "cat" && err != nil && !strings.Contains(rest, "://") {
			number, _, _ := strings.Cut(rest, ":")
			if _, err := strconv.ParseUint(number, 10, 64); err == nil {
				return fmt.Sprintf("`shardtool get %s --number %s` prints one sample by its place", args[0], number)
			}
			return fmt.Sprintf("`shardtool get %s %s` prints one sample", args[0], rest)
		}
		if strings.Contains(cmd.Use, "MIX") {
			return "give one data set, or a mix of several in a file: mix.yaml"
		}
		return "give one data set at a time"
	}
	return ""
}
