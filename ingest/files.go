package ingest

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/shardtool/shardtool/hint"
	"github.com/shardtool/shardtool/internal/input/fused"
	"github.com/shardtool/shardtool/internal/input/recognise"
	"github.com/shardtool/shardtool/internal/sys/plain"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
	"github.com/shardtool/shardtool/writer/source/tar"
)

// filesKind is folders whose files are fields of samples.
var filesKind = kind{
	of:      &recognise.Kind{One: "a folder of files", Many: "folders of files"},
	options: []string{"include", "exclude", "class-field", "pack-shuffle", "key-prefix"},
	instead: map[string]string{
		"key":         "the names of files are the keys",
		"columns":     "the extensions of files are the fields: choose files by their names, such as '*.jpg' to include",
		"rename":      "the extensions of files are the fields: leave it out and rename fields afterwards",
		"attr":        "leave it out and add attributes afterwards, from a table with the keys",
		"where":       "files have no columns: choose them by their names, such as 'cats/**' to include",
		"share":       "leave it out and divide the data set afterwards",
		"file-column": "files have no columns: name the table whose rows name them, as in 'DIR/metadata.csv'",
		"":            "leave it out, or name the files in the folder that have columns, as in 'DIR/**/*.parquet'",
	},
	afterwards: afterFiles,
	open:       openFiles,
}

// afterFiles are the commands for the fields and attributes of samples that were files.
var afterFiles = map[string]hint.Hint{
	"rename": hint.Command("renames a field", "pack", "OUT", "NEW", "--rename", "JPEG=jpg"),
	"share":  hint.Command("takes a part", "pack", "OUT", "NEW", "--share", "0%..90%"),
	"attr":   hint.Command("adds one", "layer", "add", "OUT", "NAME", "TABLE", "--key", "id", "--attr", "score=score"),
}

// tarKind is tar archives of samples.
var tarKind = kind{
	of:      recognise.Tar,
	options: []string{"include", "exclude", "key-prefix"},
	instead: map[string]string{
		"pack-shuffle": "they are read from front to back; extract them to a folder to shuffle them, or rely on the shuffle when reading",
		"class-field":  "their fields come as they are",
		"key":          "the names in them are the keys",
		"columns":      "the extensions in them are the fields: choose by names, such as '*.jpg' to include",
		"rename":       "the extensions in them are the fields: leave it out and rename fields afterwards",
		"attr":         "leave it out and add attributes afterwards, from a table with the keys",
		"where":        "they have no columns: choose by names, such as 'cats/**' to include",
		"share":        "leave it out and divide the data set afterwards",
		"":             "leave it out, or extract the archives and pack the folder",
	},
	afterwards: afterFiles,
	open:       openArchives,
}

// zipKind is zip archives, which are read as folders of what they contain.
var zipKind = kind{of: recognise.Zip, options: []string{"key-prefix"}}

func openArchives(ctx context.Context, f *Found) (writer.Source, int64, error) {
	whole := true
	for _, in := range f.files {
		whole = whole && strings.HasSuffix(strings.ToLower(cmp.Or(in.As, in.Name)), ".tar")
	}
	opt := tar.Options{MemberMemory: max(f.Memory, 64<<20), KeyPrefix: f.KeyPrefix, LastDot: f.LastDot}
	if !f.chosen { // in folders they choose archives
		opt.Include, opt.Exclude = f.Include, f.Exclude
	}
	if !f.FirstDot && !f.LastDot && !f.Examine {
		opt.Log = f.Log
	}
	src, err := tar.New(ctx, f.files, opt)
	if err != nil {
		return nil, 0, err
	}
	if read, is := src.(tar.Tallied); is {
		f.read = read.Tally
	}
	_, size := src.Total()
	if text := plain.Plural(len(f.files), "archive"); size > 0 {
		f.known("%s, %s", text, plain.Bytes(uint64(size)))
	} else { // of standard input
		f.known("%s", text)
	}
	if !whole {
		size = 0 // their content is not known in advance
	}
	return src, size, nil
}

func openFiles(ctx context.Context, f *Found) (writer.Source, int64, error) {
	var src *source.Files
	var err error
	if len(f.files) > 0 {
		var stores []objstore.Store
		for _, in := range f.files {
			stores = append(stores, in.Store)
		}
		src, err = source.NewObjects(ctx, stores, f.filesOptions())
	} else {
		var folders []string
		for _, src := range f.srcs {
			folders = append(folders, src.Secret())
		}
		src, err = source.NewFiles(ctx, folders, f.filesOptions())
	}
	if err != nil {
		return nil, 0, err
	}
	f.names.Add(&src.Tally)
	samples, size := src.Total()
	without := ""
	if src.Tally.Total() > 0 {
		without = fmt.Sprintf(" (left out: %s)", plain.Text(src.Tally.String()))
	}
	f.known("%s, %s of files%s", plain.Plural(samples, "sample"), plain.Bytes(uint64(size)), without)
	if samples == 0 {
		src.Close()
		why := "there are no files: check the path"
		if src.Filtered > 0 {
			why = f.opt("include") + " and " + f.opt("exclude") + " leave out all files"
		} else if src.Hidden > 0 {
			why = "the names of all files begin with a dot: " + f.opt("include") + " '.*' packs them too"
		}
		return nil, 0, fmt.Errorf("%w in %s: nothing to pack; %s", writer.ErrEmpty, f.allNames(), why)
	}
	if err := f.checkFused(&src.Fused); err != nil {
		src.Close()
		return nil, 0, err
	}
	return src, size, nil
}

// checkFused refuses folders in which the rule of the first dot fuses files that look like samples
// of their own, and warns where there are few samples for so many files.
func (f *Found) checkFused(of *fused.Watch) error {
	switch {
	case f.FirstDot || f.LastDot || f.Examine:
	case of.Key != "":
		return wrongf("source %s: %s, because %s: rename them, such as the first to %s, as %s last-dot does; or %[5]s first-dot packs them like that", f.allNames(), of.Example(), fused.Rule, of.Renamed(), f.opt("sample-rule"))
	case of.Few():
		f.warn("%s of %s: %s; look at some with `shardtool doctor`", plain.Plural(of.Samples, "sample"),
			plain.Plural(of.Files, "file"), fused.Rule)
	}
	return nil
}
