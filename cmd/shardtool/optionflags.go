package main

import (
	"errors"
	"regexp"
	"strconv"
	"strings"

	"github.com/shardtool/shardtool/writer"
)

// optionFlags are the flags that set the options of the writer and its sources. Errors of the
// library name options; the commands name flags.
var optionFlags = map[string]string{
	"attr": "attr", "block-size": "block-size", "columns": "columns", "delimiter": "delimiter", "dtype": "token-dtype",
	"exclude": "exclude", "fields": "columns", "include": "include", "key": "key", "length": "pack-tokens",
	"max-skipped": "max-skipped", "memory": "memory", "name": "name", "pad": "pad-id", "raw": "raw-dtype",
	"remainder": "pack-remainder", "rename": "rename", "samples-per-shard": "samples-per-shard", "separator": "separator",
	"shard-size": "shard-size", "share": "share", "where": "where", "workers": "workers",
}

// optionText matches an option in an error, after the package that it comes from.
var optionText = regexp.MustCompile(`^(?:(?:lines|parquet|tokens|reshard): )?(.*?)\boption ([a-z-]*)`)

// optionError converts the error of an option to one of the flag that set it.
func optionError(err error) error {
	var bad *writer.OptionError
	switch {
	case errors.As(err, &bad):
		return usagef("--%s %s: %s", optionFlags[bad.Option], valueText(bad), bad.Reason)
	case !errors.Is(err, writer.ErrOptions):
		return err
	}
	text := err.Error()
	m := optionText.FindStringSubmatchIndex(text)
	if m == nil {
		return usagef("%s", text)
	}
	name, rest := text[m[4]:m[5]], text[m[5]:]
	if flag := optionFlags[name]; flag != "" {
		name = "--" + flag
	}
	return usagef("%s", text[m[2]:m[3]]+name+rest)
}

// argumentError converts the error of an option to one of the argument of a Python writer.
func argumentError(err error) error {
	var bad *writer.OptionError
	if !errors.As(err, &bad) {
		return err
	}
	return usagef("%s=%s: %s", strings.ReplaceAll(bad.Option, "-", "_"), bad.Value, bad.Reason)
}

// valueText writes sizes as flags do.
func valueText(e *writer.OptionError) string {
	n, err := strconv.ParseInt(e.Value, 10, 64)
	if err != nil || e.Option != "block-size" && e.Option != "shard-size" && e.Option != "memory" {
		return e.Value
	}
	return (*sizeFlag)(&n).String()
}
