package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source/parquet"
)

// parquetFlags say what becomes of rows.
type parquetFlags struct {
	opt           parquet.Options
	rename, attrs []string
}

func (f *parquetFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.opt.Key, "key", "", "Parquet: the column of keys, strings or integers (default: file name and row number)")
	fl.StringSliceVar(&f.opt.Columns, "columns", nil, "Parquet: take only these columns, as a,b")
	fl.StringArrayVar(&f.rename, "rename", nil, "Parquet: call a column's field otherwise, as column=name (may be repeated)")
	fl.StringArrayVar(&f.attrs, "attr", nil, "Parquet: keep a column in the index, as attribute=column (may be repeated)")
	fl.StringArrayVar(&f.opt.Where, "where", nil, "Parquet: take rows for which this holds, as 'column>=value' (may be repeated)")
}

// options reads pairs.
func (f *parquetFlags) options() error {
	pairs := func(flag, want string, list []string) (map[string]string, error) {
		var out map[string]string
		for _, text := range list {
			a, b, ok := strings.Cut(text, "=")
			if _, twice := out[a]; !ok || a == "" || b == "" || twice {
				return nil, usagef("--%s %q: write %s, each once", flag, text, want)
			}
			if out == nil {
				out = map[string]string{}
			}
			out[a] = b
		}
		return out, nil
	}
	var err error
	if f.opt.Rename, err = pairs("rename", "column=name", f.rename); err != nil {
		return err
	}
	f.opt.Attrs, err = pairs("attr", "attribute=column", f.attrs)
	return err
}

// provenance is what the data set keeps of the options.
func (f *parquetFlags) provenance(to map[string]string) {
	list := func(name string, values []string) {
		if len(values) > 0 {
			to[name] = fmt.Sprintf("%q", values)
		}
	}
	if f.opt.Key != "" {
		to["key"] = f.opt.Key
	}
	list("columns", f.opt.Columns)
	list("rename", slices.Sorted(slices.Values(f.rename)))
	list("attr", slices.Sorted(slices.Values(f.attrs)))
	list("where", f.opt.Where)
}

// isParquet goes by the name, as all readers of Parquet do.
func isParquet(name string) bool {
	lower := strings.ToLower(name)
	return strings.HasSuffix(lower, ".parquet") || strings.HasSuffix(lower, ".parq") || strings.HasSuffix(lower, ".pq")
}

// parquetKind is files of rows.
var parquetKind = kind{
	name:    "Parquet files",
	one:     "a Parquet file",
	match:   isParquet,
	flags:   []string{"key", "columns", "rename", "attr", "where"},
	instead: func(string) string { return "--columns and --where choose, and reading shuffles" },
	open:    openParquet,
}

func openParquet(ctx context.Context, found *found, f *packFlags, stderr io.Writer) (writer.Source, int64, error) {
	src, err := parquet.New(ctx, found.files, f.parquet.opt)
	if errors.Is(err, parquet.ErrOption) {
		text := strings.TrimPrefix(err.Error(), "parquet: ")
		return nil, 0, usagef("%s", strings.Replace(text, parquet.ErrOption.Error()+" ", "--", 1))
	}
	if err != nil {
		return nil, 0, err
	}
	rows, size := src.Total()
	f.known(stderr, "%s in %s, %s of columns", plural(rows, "row"), plural(len(found.files), "Parquet file"), bytesText(uint64(size)))
	if rows == 0 {
		src.Close()
		return nil, 0, &exitError{exitNotFound, fmt.Errorf("%w in %s: nothing to pack", writer.ErrEmpty, plural(len(found.files), "Parquet file"))}
	}
	return src, size, nil
}
