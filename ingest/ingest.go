// Package ingest opens sources of samples by the names that people write: what `shardtool pack`
// does, for every Go program.
//
//	photos/                          a folder whose files are fields of samples
//	'data/*.parquet', rows.jsonl     files of rows: Parquet, Arrow, JSON Lines, CSV, TFRecord, MDS
//	'wds/train-{000..099}.tar'       tar archives of samples, and zip archives of any of these
//	tokens.npy                       arrays, whose rows are samples, and token ids
//	out/, out/#clean, s3://b/out     data sets, as package open opens them
//	s3://bucket/raw                  any of these in a store, at an address of package address
//	-                                standard input, where Options.Stdin is set
//
// Kinds are recognised by their bytes and names. [Open] opens them:
//
//	in, err := ingest.Open(ctx, []string{"s3://bucket/raw"}, ingest.Options{})
//	if err != nil {
//		return err
//	}
//	defer in.Close()
//	_, err = writer.Pack(ctx, store, in.Source, writer.Options{Layout: in.Layout})
//
// A kind that cannot be read, and an option that does not apply to the kind, is an [*Error], which
// says what to do.
package ingest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/hint"
	"github.com/shardtool/shardtool/internal/input/tally"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/address"
	"github.com/shardtool/shardtool/reshard"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
	"github.com/shardtool/shardtool/writer/source/lines"
	"github.com/shardtool/shardtool/writer/source/tar"
	"github.com/shardtool/shardtool/writer/source/tokens"
)

// Options say what becomes a sample, and with which resources. The zero value takes everything, and
// decides by the bytes and names of files what they are.
type Options struct {
	// As is what the files are, instead of what they are recognised as: one of Kinds. "files" are
	// fields of samples.
	As string
	// TextLines makes a sample of each line of the files, with the field txt. In folders these are the
	// .txt files, or all files if there are none.
	TextLines bool
	// Include and Exclude are globs of names of files, or of keys of data sets.
	Include, Exclude []string
	// AllSplits takes the files of several splits, such as train-* and test-*, as one data set.
	// Otherwise they are refused.
	AllSplits bool
	// FirstDot takes files that share a name up to the first dot as one sample also where they look
	// like samples of their own, which is refused otherwise.
	FirstDot bool
	// LastDot divides the names of files at the last dot instead: cat.0.jpg is the field jpg of the
	// sample cat-0. Keys have hyphens for dots.
	LastDot bool
	// KeyPrefix has the keys of each folder, tar or zip archive, or data set begin with its name,
	// because they may be the same in several.
	KeyPrefix bool
	// LeaveUnsafe leaves out names of a store that cannot be read, such as a//b.jpg. Otherwise they
	// are refused.
	LeaveUnsafe bool
	// ClassField adds a field of this name with the number of the sample's first folder, in the order
	// of Classes, then of names. Data sets that have classes need the same Classes.
	ClassField string
	Classes    []string
	// Shuffle takes the samples of folders in a random order, drawn with Seed.
	Shuffle bool
	Seed    uint64

	Rows   Rows
	Tokens Tokens
	// Share is the part of data sets that is taken, and Layers are layers that add to them.
	Share  reshard.Share
	Layers []string
	// Lengths are attributes that the writer makes, as in writer.Options. A data set that has one of
	// them already is refused.
	Lengths map[string]string

	// Stdin is what the source "-" reads, once, and StdinFormat what it is: tar (the default), jsonl,
	// csv, parquet or zip.
	Stdin       io.Reader
	StdinFormat string

	// Stacked is set where all samples are to be stacked: lists of numbers then become arrays.
	Stacked bool
	// Examine opens what is otherwise refused because its names look wrong, for a report on them.
	Examine bool
	// Memory is the budget in bytes, Workers the number of threads, and TempDir the folder of
	// temporary files. The zero values mean 256 MiB, the CPUs this process may use, and the system's.
	Memory  int64
	Workers int
	TempDir string

	// Said are the options that a user gave, by their names on the command line, also where they have
	// their zero value. Those that do not apply to the kind are refused. Nil: those that are not zero.
	Said map[string]bool
	// Spell returns how a user writes an option, in messages. Nil: as "the option NAME".
	Spell func(option string) string
	// Note receives what was found, and Listed how many files have been listed, while folders are.
	Note   func(text string)
	Listed func(files int64)
	// Warn receives what is probably not meant. Nil: Log does.
	Warn func(text string)
	// Log receives other warnings. Nil means none.
	Log *slog.Logger
}

// Rows say how rows of files become samples.
type Rows struct {
	// Key is the column of keys, strings or integers. Empty: name of the file and number of the row.
	Key string
	// Columns are the columns taken, or the fields of data sets. Empty: all.
	Columns []string
	// Rename has the fields of columns that have other names, and Attrs the columns that become
	// attributes, by attribute.
	Rename, Attrs map[string]string
	// Where are conditions that hold for all rows taken, or samples of data sets.
	Where []string
	// Nulls says what becomes of rows whose columns are all null.
	Nulls source.Nulls
	// Delimiter separates cells of CSV. Empty: a comma, in .tsv a tab.
	Delimiter string
	// Header says whether the first line of CSV names the columns, and ColumnsAre what they are named
	// without one.
	Header     lines.Header
	ColumnsAre []string
	// Unquoted takes quotes in CSV as text, so that each line is a row. AllowNaN reads NaN and
	// Infinity in JSON.
	Unquoted, AllowNaN bool
	// Widen reads columns of integers in some files and of floats in others as floats.
	Widen bool
	// Files are columns with paths of files, which become fields. Their folder is FileRoot, or the one
	// of the file of rows.
	Files    []FileColumn
	FileRoot string
}

// FileColumn is a column with paths of files: their bytes become the field Field, with their
// extension.
type FileColumn struct{ Field, Column string }

// Tokens say how token ids become samples.
type Tokens struct {
	// Length is the number of ids of a sample. 0: each row of an array is a sample.
	Length int64
	// Join joins the documents of any source into such samples, with Separator after each.
	Join      bool
	Separator []int64
	// Field is the field or column with the ids of a document.
	Field string
	// DType is the type of ids in samples, and Raw the one in .bin files without a header.
	DType, Raw tokens.DType
	// Remainder says what becomes of the last ids, and PadID what pads them.
	Remainder tokens.Remainder
	PadID     int64
}

// Error says what is wrong in what a user wrote, and what to do.
type Error struct {
	Err error
	// Kind is the kind of a source that is not read, such as hdf5, and Program lines of a program that
	// packs it.
	Kind, Program string
}

// Error returns the text of Err.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

func wrongf(format string, args ...any) error { return &Error{Err: fmt.Errorf(format, args...)} }

// Input is samples. Close it after use.
type Input struct {
	// Source gives the samples. It may be a writer.Splitter too, to be packed in parts.
	Source writer.Source
	// Kind is what the sources are, in words, such as "Parquet files".
	Kind string
	// Size is how many bytes there are to read, 0 if that is not known in advance.
	Size int64
	// Layout is LayoutAuto if the samples are arrays that are best stacked.
	Layout writer.Layout

	found *Found
}

// Names accounts for all names that the sources have: files, objects, and the members of archives
// that were read so far. A run that continues another counts what that one left out, too.
func (in *Input) Names() *tally.Tally { return in.PartNames(0) }

// PartNames is like Names for a part of a pack in parts. Each part lists all files: they count for
// the part 0, so that the counts of all parts add up to those of the whole.
func (in *Input) PartNames(part int) *tally.Tally {
	var all tally.Tally
	if part == 0 {
		all.Add(&in.found.names)
	}
	if in.found.read != nil {
		of := in.found.read()
		all.Add(&of)
	}
	return &all
}

// Tally is like PartNames after a pack, and accounts for the rows, too, of which that many became
// samples or were skipped. Where documents are joined, it has only those that were left out or
// skipped.
func (in *Input) Tally(part int, samples, skipped int64, left writer.RowsLeft) *tally.Tally {
	all, f := in.PartNames(part), in.found
	all.LeaveRows(left)
	if f.Named() { // whose members or files were counted
		return all
	}
	all.Listed += skipped - left.Null - left.Duplicate + left.Total()
	if f.kind.rows && !f.Tokens.joins(f.kind) {
		all.Listed += samples
	}
	return all
}

// Dropped is how many token ids after the last whole sample were left out so far.
func (in *Input) Dropped() int64 { return in.found.dropped }

// Unmet has an error for each column that Rows.Columns, Rows.Rename or Rows.Attrs names and no row
// had so far, and a warning for each attribute that most rows have as a number and some as text.
// Where the columns are known before the rows are read, Open refuses those that there are not.
func (in *Input) Unmet() []*hint.OptionError {
	if in.found.unmet == nil {
		return nil
	}
	return in.found.unmet()
}

// Explain adds to the error of packing the samples which option helps sources of their kind.
func (in *Input) Explain(err error) error {
	f := in.found
	stdin := slices.ContainsFunc(f.srcs, func(a objstore.Address) bool { return a.String() == "-" })
	if stdin && f.kind == &tarKind && errors.Is(err, format.ErrCorrupt) {
		err = fmt.Errorf("%w; of a list of names `tar -cf - -T LIST` makes a tar", err)
		return hint.With(err, hint.Set("stdin-format", "jsonl", "reads lines of JSON from standard input, in place of a tar"))
	}
	named := slices.Contains(f.kind.options, "key-prefix") || (&recognised{kind: f.kind, files: f.files}).zipped()
	if named && max(len(f.srcs), len(f.files)) > 1 && !f.KeyPrefix && errors.Is(err, format.ErrDuplicate) &&
		!errors.Is(err, tar.ErrTwice) {
		return hint.With(err, hint.Set("key-prefix", "source", "begins keys with the names of their "+f.kind.of.Many))
	}
	return err
}

// Close closes the source, and removes temporary files.
func (in *Input) Close() error {
	defer in.found.Close()
	return in.Source.Close()
}

// Open finds what the addresses name, which must be of one kind, and opens it.
func Open(ctx context.Context, addresses []string, o Options) (*Input, error) {
	f, err := Find(ctx, addresses, o)
	if err != nil {
		return nil, err
	}
	in, err := f.Open(ctx)
	if err != nil {
		f.Close()
		return nil, err
	}
	return in, nil
}

// leastMemory is what reading a data set takes at least.
const leastMemory = 1 << 20

// Found is the kind and the files of sources that are not open yet.
type Found struct {
	Options
	as   asKind
	kind *kind
	srcs []objstore.Address
	// files are the files of a kind in fileKinds, in the order of srcs. For folders of files they are
	// the stores among srcs, with Store only.
	files []source.Input
	// why explains, in messages, why a folder is one of files.
	why   string
	close func() // removes temporary files
	// names accounts for what was listed to find the files, and read for what the source has read.
	names tally.Tally
	read  func() tally.Tally
	// others are files that rows may name, by their places.
	others map[string]string
	// chosen reports that Include and Exclude chose the files.
	chosen bool
	// narrowed reports that only the column of tokens is read.
	narrowed bool
	even     bool // samples are equal arrays
	dropped  int64
	unmet    func() []*hint.OptionError // of columns that no row had so far; nil: all are there
}

// Find finds the kind of the sources, which must be the same for all, and their files.
func Find(ctx context.Context, addresses []string, o Options) (_ *Found, err error) {
	o.Memory = cmp.Or(o.Memory, 256<<20)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if addresses, err = address.Locals(addresses); err != nil {
		return nil, wrongf("source %w", err)
	}
	f := &Found{Options: o, srcs: objstore.Addresses(addresses), close: func() {}}
	defer func() {
		if err != nil {
			f.close()
		}
	}()
	if err := cmp.Or(f.parseAs(), f.checkStdin(addresses), f.checkFileColumns()); err != nil {
		return nil, err
	}
	for i, src := range f.srcs {
		if err := f.add(ctx, i, src); err != nil {
			return nil, err
		}
	}
	if f.LastDot && !f.Named() {
		return nil, wrongf("%s last-dot divides the names of files, and source %s is %s, whose samples have no such names", f.opt("sample-rule"), f.srcs[0], f.kind.of.One)
	}
	if splits := f.splits(); len(splits) > 1 {
		f.known("the splits %s, which become one data set", splits.Names())
	}
	return f, nil
}

// add finds source i.
func (f *Found) add(ctx context.Context, i int, src objstore.Address) (err error) {
	if src.Secret() == "" {
		return wrongf("a source is empty: give a folder of files, or archives or files of rows")
	}
	var r *recognised
	if src.Secret() == stdinName {
		r, err = f.lookAtStdin(ctx)
	} else {
		r, err = f.lookAt(ctx, src.Secret())
	}
	if err != nil {
		return err
	}
	if r.note != "" {
		f.known("%s", r.note)
	}
	f.kind = cmp.Or(f.kind, r.kind)
	if r.kind != f.kind {
		return wrongf("source %s is %s and %s is %s%s: pack one kind, then the other with %s", f.srcs[0], f.kind.of.One,
			src, r.kind.of.One, r.why, f.opt("append"))
	}
	if err := f.knows(r, src); err != nil {
		return err
	}
	// Folders are read by their paths, and stores and archives as files.
	if f.kind == &filesKind && i > 0 && (len(r.files) > 0) != (len(f.files) > 0) {
		return wrongf("of the sources %s and %s one is a folder on this machine and one is not: pack the one, then the other with %s", f.srcs[0], src, f.opt("append"))
	}
	f.files, f.why, f.chosen = append(f.files, r.files...), f.why+r.why, f.chosen || r.folder
	f.names.Add(&r.names)
	if f.others == nil {
		f.others = map[string]string{}
	}
	maps.Copy(f.others, r.others)
	return nil
}

// Kind is what the sources are, in words, such as "Parquet files".
func (f *Found) Kind() string { return f.kind.of.Many }

// Datasets reports whether the sources are data sets.
func (f *Found) Datasets() bool { return f.kind == &datasetKind }

// Named reports whether the names of files determine keys and fields.
func (f *Found) Named() bool { return f.kind == &filesKind || f.kind == &tarKind }

// MemoryUsed is the budget of reading and packing: reading data sets takes half as much again.
func (f *Found) MemoryUsed() int64 {
	if f.Datasets() {
		return f.Memory + max(f.Memory/2, leastMemory)
	}
	return f.Memory
}

// Align has arrays of token ids give rows as they are, under the names of their files, for a layer
// whose rows are those of its data set. Other sources, and arrays that are cut, stay as they are.
func (f *Found) Align() {
	npy := func(in source.Input) bool { return strings.EqualFold(path.Ext(in.Name), ".npy") }
	if f.kind == &tokensKind && f.Tokens.Length == 0 && !slices.ContainsFunc(f.files,
		func(in source.Input) bool { return !npy(in) }) {
		f.kind = &arraysKind
	}
}

// Close removes temporary files. The Input of Open does it, too.
func (f *Found) Close() { f.close() }

// Open opens the sources.
func (f *Found) Open(ctx context.Context) (*Input, error) {
	src, size, err := f.open(ctx)
	if err != nil {
		return nil, err
	}
	in := &Input{Source: src, Kind: f.Kind(), Size: size, found: f}
	if f.even || f.kind.tokens && !f.Tokens.joins(f.kind) {
		in.Layout = writer.LayoutAuto
	}
	return in, nil
}

// opt is how a user writes an option.
func (f *Found) opt(name string) string {
	if f.Spell == nil {
		return "the option " + name
	}
	return f.Spell(name)
}

// said reports whether a user gave an option that does not apply to all kinds.
func (f *Found) said(name string) bool {
	if f.Said != nil {
		return f.Said[name]
	}
	return map[string]bool{
		"include": len(f.Include) > 0, "exclude": len(f.Exclude) > 0, "class-field": f.ClassField != "",
		"pack-shuffle": f.Shuffle,
		"key":          f.Rows.Key != "", "columns": len(f.Rows.Columns) > 0, "rename": len(f.Rows.Rename) > 0,
		"attr":  len(f.Rows.Attrs) > 0,
		"where": len(f.Rows.Where) > 0, "nulls": f.Rows.Nulls != source.NullsFail, "delimiter": f.Rows.Delimiter != "",
		"header": f.Rows.Header != lines.HeaderAuto, "columns-are": len(f.Rows.ColumnsAre) > 0,
		"quote": f.Rows.Unquoted, "allow-nan": f.Rows.AllowNaN, "widen": f.Rows.Widen,
		"file-column": len(f.Rows.Files) > 0, "file-root": f.Rows.FileRoot != "",
		"key-prefix": f.KeyPrefix,
		"share":      f.Share != (reshard.Share{}), "layer": len(f.Layers) > 0,
	}[name]
}

// known notes how much was found.
func (f *Found) known(format string, args ...any) {
	if f.Note != nil {
		f.Note(fmt.Sprintf(format, args...))
	}
}

// warn says what is probably not meant.
func (f *Found) warn(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); f.Warn != nil {
		f.Warn(text)
	} else {
		f.Log.Warn(text)
	}
}

func (f *Found) filesOptions() source.FilesOptions {
	return source.FilesOptions{
		Include: f.Include, Exclude: f.Exclude, KeyPrefix: f.KeyPrefix, LastDot: f.LastDot, LeaveUnsafe: f.LeaveUnsafe,
		ClassField: f.ClassField, Classes: f.Classes, Shuffle: f.Shuffle, Seed: f.Seed,
		Memory: f.Memory / 4, TempDir: f.TempDir, Found: f.Listed,
	}
}
