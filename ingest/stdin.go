package ingest

import (
	"cmp"
	"context"
	"slices"

	"github.com/shardtool/shardtool/writer/source"
)

// stdinName is the source that stands for standard input. A folder of that name is ./-.
const stdinName = "-"

// stdinKinds are the values of Options.StdinFormat.
var stdinKinds = map[string]*kind{"tar": &tarKind, "jsonl": &linesKind, "csv": &linesKind, "parquet": &parquetKind,
	"zip": &zipKind}

// lookAtStdin finds the kind of standard input. f.close removes what it spooled.
func (f *Found) lookAtStdin(ctx context.Context) (*recognised, error) {
	is := cmp.Or(f.StdinFormat, "tar")
	k := stdinKinds[is]
	if f.TextLines {
		k, is = &textKind, "txt"
	}
	switch {
	case k == nil:
		return nil, wrongf("%s %q: use tar, jsonl, csv, parquet or zip", f.opt("stdin-format"), is)
	case f.Stdin == nil:
		return nil, wrongf("the source '-' is standard input, which this program does not read")
	}
	name := "stdin." + is
	var in source.Input
	var err error
	if k == &parquetKind || k == &zipKind {
		f.known("%s on standard input: copying it to a temporary file, because it is not read from front to back", is)
		var remove func()
		if in, remove, err = source.SpooledInput(ctx, f.Stdin, name, f.TempDir); err == nil {
			f.close = remove
		}
	} else if in, err = source.ReaderInput(ctx, f.Stdin, name); err == nil {
		err = f.checkFormat(ctx, in, is)
	}
	if err != nil {
		return nil, err
	}
	return f.lookInArchives(ctx, stdinName, &recognised{kind: k, files: []source.Input{in}})
}

// checkFormat rejects a stream that begins as one of another format does. A shorter one is left to
// its reader.
func (f *Found) checkFormat(ctx context.Context, in source.Input, format string) error {
	obj, err := in.Store.Open(ctx, in.Name)
	if err != nil {
		return err
	}
	defer obj.Close()
	var head [4]byte
	if obj.ReadAt(ctx, head[:], 0) != nil {
		return ctx.Err()
	}
	for magic, is := range map[string]string{"PK\x03\x04": "zip", "PK\x05\x06": "zip", "PAR1": "parquet"} {
		if string(head[:]) == magic {
			return wrongf("standard input is %s and not %s: name it by %s %s", is, format, f.opt("stdin-format"), is)
		}
	}
	return nil
}

// checkStdin rejects the second use of standard input, and its format where it is not a source.
func (f *Found) checkStdin(srcs []string) error {
	first := slices.Index(srcs, stdinName)
	switch {
	case first < 0 && f.StdinFormat != "":
		return wrongf("%s is for standard input, and no source is '-'; the sources are: %s", f.opt("stdin-format"),
			f.allNames())
	case first >= 0 && slices.Contains(srcs[first+1:], stdinName):
		return wrongf("'-' is given twice, and standard input can be read once")
	}
	return nil
}
