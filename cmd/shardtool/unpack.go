package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/fieldname"
	"github.com/shardtool/shardtool/internal/input/globs"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/address"
	"github.com/shardtool/shardtool/reader"
)

type unpackFlags struct {
	include, fields []string
	quiet           bool
}

func newUnpack() *cobra.Command {
	var f unpackFlags
	cmd := &cobra.Command{
		Use:   "unpack DATASET DIR",
		Short: "Write every field of every sample as a file",
		Long: `Write the fields of all samples, or of the samples of a view, as files DIR/KEY.FIELD: the folder that pack reads.
Removed samples are left out. A file that exists is kept if it has the same bytes, so that the same command continues an interrupted
one; with other bytes it is an error. Nothing is written outside DIR, whatever the keys are.`,
		Example: "  shardtool unpack out/ photos/\n  shardtool unpack out/ photos/ --fields jpg,json\n  shardtool unpack out/ dogs/ --include 'dogs/*'",
		Args:    usageArgs(cobra.ExactArgs(2)),
		RunE:    func(cmd *cobra.Command, args []string) error { return f.run(cmd, args[0], args[1]) },
	}
	fl := cmd.Flags()
	fl.StringArrayVar(&f.include, "include", nil,
		"write the files that match this `GLOB` of KEY.FIELD, such as 'dogs/**/*.jpg'; repeatable")
	fl.StringSliceVar(&f.fields, "fields", nil, "write these fields alone")
	fl.BoolVarP(&f.quiet, "quiet", "q", false, "print warnings and errors alone")
	return cmd
}

// unpacker writes the files of a data set.
type unpacker struct {
	unpackFlags
	ds     *reader.Dataset
	root   *os.Root
	folder string // that exists
	swept  map[string]bool
	files  uint64
}

func (f *unpackFlags) run(cmd *cobra.Command, arg, dir string) error {
	ctx := cmd.Context()
	ds, err := openDataset(ctx, arg)
	if errors.Is(err, fs.ErrNotExist) {
		if swapped, _ := isOneDataset(ctx, []string{dir}); swapped {
			err = fmt.Errorf("%w; %s is a data set: did you mean `shardtool unpack %[2]s %[3]s`?", err, dir, arg)
		}
	}
	if err != nil {
		return err
	}
	defer ds.Close()
	if err := checkPatterns("--include ", f.include); err != nil {
		return err
	}
	var have []string
	for _, t := range ds.Info().Fields {
		have = append(have, t.Name)
	}
	wanted := f.fields
	f.fields = nil
	for _, name := range wanted {
		found, list, err := fieldname.FindAll(name, have, ds.Lists())
		if err != nil {
			return usagef("--fields: %w", err)
		}
		if len(found) == 0 && !list {
			return &exitError{exitNotFound, fmt.Errorf("%v has no field %q; it has %s", ds.Store(), name,
				strings.Join(have, ", "))}
		}
		f.fields = append(f.fields, found...)
	}
	if dir, err = address.Local(dir); err != nil {
		return usagef("%w", err)
	}
	if err := newFolder(dir, "unpack", "`shardtool cat DATASET > OUT.tar` makes one tar"); err != nil {
		return err
	}
	if to, err := address.Open(ctx, dir, address.Options{}); err == nil && objstore.TraitsOf(to).Remote() {
		return usagef("%v: files are written to a folder", to)
	} else if err != nil {
		return usagef("%w", err)
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	u := &unpacker{unpackFlags: *f, ds: ds, root: root, swept: map[string]bool{}}
	size := payloadBytes(ds)
	bar := newProgress(cmd.ErrOrStderr(), "unpacking", bytesOf(int64(size)), f.quiet)
	defer bar.end()
	for b, err := range ds.Blocks(ctx, reader.BlockOptions{Take: u.take}) {
		if err != nil {
			return err
		}
		if b.Large {
			err = u.large(ctx, b)
		} else {
			err = u.block(b)
		}
		if err != nil {
			return err
		}
		bar.set(int64(float64(size)*float64(b.First+uint64(b.Samples))/float64(ds.NumSamples())),
			plural(u.files, "file"))
	}
	if !f.quiet {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s in %s\n", plural(u.files, "file"), shown(dir))
	}
	return nil
}

// take reports whether the view has samples of a block.
func (u *unpacker) take(_ context.Context, b *reader.Block) (bool, error) {
	for n := range uint64(b.Samples) {
		if u.ds.Selection().Has(b.First + n) {
			return true, nil
		}
	}
	return false, nil
}

// block writes the samples of a block.
func (u *unpacker) block(b *reader.Block) error {
	for {
		s, err := b.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, field := range s.Fields {
			err := u.field(s.Number, string(s.Key), string(field.Name), int64(len(field.Data)),
				func(w io.Writer) error {
					_, err := w.Write(field.Data)
					return err
				})
			if err != nil {
				return err
			}
		}
	}
}

// large writes the samples of a block that memory does not hold.
func (u *unpacker) large(ctx context.Context, b *reader.Block) error {
	ix, first, err := indexOf(ctx, u.ds, b.Shard)
	if err != nil {
		return err
	}
	for n := b.First; n < b.First+uint64(b.Samples); n++ {
		if u.ds.Removed(n) {
			continue
		}
		i := int(n - first)
		for _, field := range ix.Cursors([]int{i})[0].Fields(nil) {
			if err := u.field(n, ix.Keys.At(i), field.Name, field.Size,
				func(w io.Writer) error { return u.ds.Field(ctx, n, field.Name, w) }); err != nil {
				return err
			}
		}
	}
	return nil
}

// field writes a field of a sample, unless the view or the flags leave it out.
func (u *unpacker) field(number uint64, key, field string, size int64, write func(io.Writer) error) error {
	name := format.JoinName(key, field)
	wanted := len(u.fields) == 0 || slices.Contains(u.fields, field)
	if !wanted || !u.ds.Selection().Has(number) || !(globs.Choice{Include: u.include}).Takes(name) {
		return nil
	}
	if err := u.file(name, size, write); err != nil {
		return fmt.Errorf("sample number %d: %w", number, err)
	}
	return nil
}

func exists(name string) error {
	return fmt.Errorf("%q exists with other bytes, or two samples have this name: unpack to another folder, or choose with --include", name)
}

// same fails unless a file has the bytes that write writes.
func (u *unpacker) same(name string, write func(io.Writer) error) error {
	file, err := u.root.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	c := &comparer{file: bufio.NewReaderSize(file, 64<<10)}
	if err = write(c); errors.Is(err, errOther) {
		return exists(name)
	}
	return err
}

var errOther = errors.New("other bytes")

// comparer is a writer that fails if it gets other bytes than a file has.
type comparer struct {
	file *bufio.Reader
	have []byte
}

func (c *comparer) Write(b []byte) (int, error) {
	c.have = slices.Grow(c.have[:0], len(b))[:len(b)]
	if _, err := io.ReadFull(c.file, c.have); err != nil || !bytes.Equal(b, c.have) {
		return 0, errOther
	}
	return len(b), nil
}

// partial matches the names of files that are not whole yet, each beside the file that it becomes.
// They are random: several commands may write into one folder. They are short: names may be as long
// as the file system allows.
var partial = regexp.MustCompile(`^\.[0-9a-f]{16}\.shardtool-part$`)

// create makes a file that is not whole yet, and locks it: sweep leaves it alone.
func (u *unpacker) create(folder string) (out *os.File, part string, err error) {
	part = path.Join(folder, fmt.Sprintf(".%016x.shardtool-part", rand.Uint64()))
	if out, err = u.root.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666); err == nil {
		_ = unix.Flock(int(out.Fd()), unix.LOCK_EX|unix.LOCK_NB) // without locks, sweep removes nothing
	}
	return out, part, err
}

// sweep removes what killed commands left in a folder that is not whole.
func (u *unpacker) sweep(folder string) {
	names, err := fs.ReadDir(u.root.FS(), folder)
	for _, name := range names {
		if err != nil || !partial.MatchString(name.Name()) {
			continue
		}
		part := path.Join(folder, name.Name())
		if file, err := u.root.OpenFile(part, os.O_WRONLY, 0); err == nil {
			if unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
				_ = u.root.Remove(part)
			}
			file.Close()
		}
	}
}

// name gives a whole file its name. It never replaces what another command has written, where the
// file system has hard links.
func (u *unpacker) name(part, name string) error {
	err := u.root.Link(part, name)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return u.root.Rename(part, name)
	}
	_ = u.root.Remove(part)
	return err
}

// file writes a file whole or not at all. It keeps one of the same size.
func (u *unpacker) file(name string, size int64, write func(io.Writer) error) error {
	if !filepath.IsLocal(name) {
		return fmt.Errorf("the file %q would be outside the folder", name)
	}
	u.files++
	switch info, err := u.root.Stat(name); {
	case err == nil && info.Mode().IsRegular() && info.Size() == size:
		return u.same(name, write)
	case err == nil:
		return exists(name)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if folder := path.Dir(name); folder != u.folder {
		if err := u.root.MkdirAll(folder, 0o777); err != nil {
			return err
		}
		u.folder = folder
		if !u.swept[folder] {
			u.swept[folder] = true
			u.sweep(folder)
		}
	}
	const attempts = 10 // another command may sweep a file before it is locked, or has its name
	for n := 1; ; n++ {
		out, part, err := u.create(u.folder)
		if err != nil {
			return err
		}
		w := bufio.NewWriterSize(out, 64<<10)
		if err = cmp.Or(write(w), w.Flush(), out.Close()); err != nil { // Close reports late errors of networks
			_ = u.root.Remove(part)
			return err
		}
		err = u.name(part, name)
		if errors.Is(err, fs.ErrExist) {
			return u.same(name, write)
		}
		if !errors.Is(err, fs.ErrNotExist) || n == attempts {
			return err
		}
	}
}
