package main

import (
	"errors"
	"io/fs"
	"strconv"
	"strings"

	"github.com/shardtool/shardtool/hint"
	"github.com/shardtool/shardtool/objstore"
)

// remedy says what to do about an error: its hints, with the flags that set its options. It is
// empty if there is nothing to say.
func remedy(err error) string {
	text := hintText(hint.Of(err))
	var stored *objstore.Error // has its advice
	var file *fs.PathError
	if advice := objstore.Advice(err); advice != "" && errors.As(err, &file) && !errors.As(err, &stored) {
		text += "; " + advice
	}
	return text
}

// hintText writes hints after the text of an error: flags alone in parentheses, then what others
// do.
func hintText(hints []hint.Hint) string {
	var bare, does []string
	for _, h := range hints {
		words := "`shardtool " + strings.Join(h.Command, " ") + "`"
		if h.Option != "" {
			words = setFlag(h)
		}
		if h.Does == "" {
			bare = append(bare, words)
		} else {
			does = append(does, words+" "+h.Does)
		}
	}
	text := ""
	if len(bare) > 0 {
		text = " (" + strings.Join(bare, ", ") + ")"
	}
	if len(does) > 0 {
		text += "; " + strings.Join(does, ", ")
	}
	return text
}

// setFlag is the flag that sets an option as a hint says.
func setFlag(h hint.Hint) string {
	switch {
	case h.Option == "mode": // each has a flag of its own
		return "--" + h.Value
	case h.Value == "", h.Value == strconv.FormatBool(true):
		return flagOf(h.Option)
	}
	return flagOf(h.Option) + " " + h.Value
}

// flagNames are the flags of the options of the library that have another name.
var flagNames = map[string]string{
	"dtype": "token-dtype", "fields": "columns", "from": "tokens-field", "length": "pack-tokens", "pad": "pad-id",
	"raw":       "raw-dtype",
	"remainder": "pack-remainder",
}

// plainOptions are not set by a flag.
var plainOptions = map[string]bool{"inputs": true, "mixed": true, "rows": true, "level": true}

// flagOf is the flag that sets an option of the library.
func flagOf(option string) string {
	if name := flagNames[option]; name != "" {
		return "--" + name
	}
	if plainOptions[option] {
		return option
	}
	return "--" + option
}

// spelledError is an error with the text of the error of an option in it, under its name for a
// user.
type spelledError struct {
	text string
	error
}

func (e *spelledError) Error() string { return e.text }
func (e *spelledError) Unwrap() error { return e.error }

// optionError gives an error of an option the exit code for wrong usage, and names the flag that
// set it. Other errors stay as they are.
func optionError(err error) error {
	bad, ok := errors.AsType[*hint.OptionError](err)
	if !ok {
		return err
	}
	shown := *bad
	if n, err := strconv.ParseInt(bad.Value, 10, 64); err == nil &&
		(bad.Option == "block-size" || bad.Option == "shard-size" || bad.Option == "memory") {
		shown.Value = (*sizeFlag)(&n).String()
	}
	return usage(&spelledError{shown.Text(flagOf(bad.Option)), err})
}

// argumentError is optionError for a caller in Python.
func argumentError(err error) error {
	bad, ok := errors.AsType[*hint.OptionError](err)
	if !ok {
		return err
	}
	shown, name := *bad, strings.ReplaceAll(bad.Option, "-", "_")
	if bad.Value != "" {
		shown.Value, name = "", name+"="+bad.Value
	}
	return usage(&spelledError{shown.Text(name), err})
}
