package tokens

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"sort"
	"strconv"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/npy"
	"github.com/shardtool/shardtool/internal/input/kinds"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
	"github.com/shardtool/shardtool/writer/source/internal/fields"
	"github.com/shardtool/shardtool/writer/source/internal/inputs"
)

// Arrays are arrays of token ids as samples, file by file in the order given. Payloads may be read
// concurrently, and after Close. The fields describe all files, regardless of Split.
type Arrays struct {
	writer.Splitter
	Samples int64
	// Tokens is the number of tokens in samples, without padding; Dropped counts those that Drop
	// drops.
	Tokens, Dropped int64
	// Short is the number of samples that are shorter than Options.Length before padding.
	Short int64
	// DType is the type of the ids in samples, or of the first array if Options.Mixed is set.
	DType DType
	// Whole is the path of the first one-dimensional array that is a single sample because Length
	// is 0, or empty.
	Whole string
}

// arraySource reads the arrays.
type arraySource struct {
	opt    Options
	arrays []*array
	before []int64 // number of samples before each array, and in total
	sum    format.Hash

	begin, at, end int64 // samples, counted over all arrays
	file           int   // the array of sample at, or one before it
	extent         *extent
	head           []byte // header of full samples of headFor
	headFor        *array
	field          string
	npz            *archive // the one that is open
}

var _ writer.Splitter = (*arraySource)(nil)

// NewArrays reads the headers of all files. Errors in the options wrap writer.ErrOptions, errors in
// a file format.ErrCorrupt; each names the file. The caller closes the stores after reading the
// last payload.
//
// The key of a sample is the file's name without .npy, a slash, and the sample's number in the file
// in nine digits; as many folders precede the name as it takes to tell files apart. If Length is 0,
// the key of a one-dimensional array is the file's name alone.
//
// With Options.Rows, a file whose name ends in .npz has an array for each field of its rows.
//
// A file whose name ends in .idx is an index of Megatron, and lists the documents in the .bin file
// beside it. Each is a sample; with a length, their tokens are cut as one array.
func NewArrays(ctx context.Context, in []source.Input, opt Options) (*Arrays, error) {
	opt, err := opt.filled()
	if err != nil {
		return nil, err
	}
	if len(in) == 0 {
		return nil, writer.Optionf("inputs", "there are none")
	}
	files := inputs.Files(in)
	if err := inputs.SetStems(files, ".npy", ".npz", ".bin", ".idx"); err != nil {
		return nil, writer.Optionf("inputs", "%w", err)
	}
	a := &arraySource{opt: opt, arrays: make([]*array, len(files)), field: Field}
	for i := range files {
		a.arrays[i] = &array{File: files[i]}
	}
	if err := a.survey(ctx); err != nil {
		return nil, err
	}
	if err := a.agree(); err != nil {
		return nil, err
	}
	if err := a.measure(); err != nil {
		return nil, err
	}
	return a.describe(), nil
}

// survey reads the headers, some at a time.
func (a *arraySource) survey(ctx context.Context) error {
	const together = 16
	return inputs.Survey(ctx, len(a.arrays), together, func(ctx context.Context, i int) error {
		f := a.arrays[i]
		err := f.survey(ctx, &a.opt)
		if err != nil && !errors.Is(err, writer.ErrOptions) { // these name the file
			err = fmt.Errorf("%s: %w", f.Path, err)
		}
		return err
	})
}

// agree determines the type of the ids in samples.
func (a *arraySource) agree() error {
	switch {
	case a.opt.Rows:
		return a.agreeRows()
	case a.opt.Mixed:
		return nil
	}
	if a.opt.DType == 0 {
		first := a.arrays[0]
		for _, f := range a.arrays {
			if f.DType != first.DType {
				return writer.Optionf("dtype", "%s has %v and %s has %v: say which type samples are to have",
					first.Path, first.DType, f.Path, f.DType)
			}
		}
		a.opt.DType = first.DType
	}
	if a.opt.Remainder == Pad && !a.opt.DType.fits(a.opt.PadID) {
		return writer.Optionf("pad", "id %d does not fit into %v", a.opt.PadID, a.opt.DType)
	}
	return nil
}

// measure counts samples and computes the fingerprint.
func (a *arraySource) measure() error {
	h := sha256.New()
	o := &a.opt
	fmt.Fprintf(h,
		"arrays {\"Length\":%d,\"Remainder\":%d,\"PadID\":%d,\"Field\":%q,\"DType\":%d,\"Mixed\":%t,\"Raw\":%d}\n",
		o.Length, o.Remainder, o.PadID, Field, o.DType, o.Mixed, o.Raw)
	a.before = make([]int64, len(a.arrays)+1)
	for i, f := range a.arrays {
		fmt.Fprintf(h, "%q %d %q %v %t %v %d %d\n", f.Stem, f.Info.Size, f.Version(f.Info), f.DType, f.big, f.row,
			f.rows, f.rest)
		if f.index != nil {
			fmt.Fprintf(h, "index %d %q\n", f.index.Info.Size, f.index.Version(f.index.Info))
		}
		if o.Rows {
			fmt.Fprintf(h, "rows %q %q\n", a.field, f.form.head)
			for _, m := range f.membersOf() {
				fmt.Fprintf(h, "member %q %q %x\n", m.field, m.head, m.of.File().CRC32)
			}
		}
		if a.before[i+1] = a.before[i] + f.samples; a.before[i+1] < 0 {
			return errors.New("more than 2^63 samples")
		}
	}
	h.Sum(a.sum[:0])
	a.end = a.before[len(a.arrays)]
	return nil
}

// Next implements writer.Source.
func (a *arraySource) Next(ctx context.Context) (writer.Sample, error) {
	if err := ctx.Err(); err != nil {
		return writer.Sample{}, err
	}
	if a.at == a.end {
		return writer.Sample{}, io.EOF
	}
	for a.before[a.file+1] <= a.at {
		a.file++
	}
	f := a.arrays[a.file]
	number := a.at - a.before[a.file]
	if f.npz != nil {
		return a.member(ctx, f, number)
	}
	s := &span{of: f, first: number * f.length, n: f.length, to: a.typeOf(f)}
	if f.ragged {
		var err error
		if s.first, s.n, err = f.index.document(ctx, number, f.layout.size()); err == nil {
			s.extent, err = a.shareRagged(ctx, s)
		}
		if err != nil {
			return writer.Sample{}, err
		}
	}
	a.at++
	return a.sample(s, number), nil
}

// sample returns a sample of an array by its number in it.
func (a *arraySource) sample(s *span, number int64) writer.Sample {
	f, to := s.of, s.to
	out := writer.Sample{Key: f.Stem, Source: f.Path, Row: number + 1}
	if a.opt.Length > 0 || f.row != nil || f.ragged {
		out.Key = fields.RowKey(f.Stem, number)
	}
	switch {
	case f.ragged:
		s.head = npy.AppendHeader(nil, to.descr(), s.n)
	case f.form.head != nil:
		s.head = f.form.head
	case number < f.rows:
		if a.headFor != f {
			shape := f.row
			if shape == nil {
				shape = []int64{f.length}
			}
			a.head, a.headFor = npy.AppendHeader(nil, to.descr(), shape...), f // payloads keep the old one
		}
		s.head = a.head
	default:
		s.n = f.rest
		if a.opt.Remainder == Pad {
			s.pad, s.padID = f.length-f.rest, a.opt.PadID
			out.Attrs = []format.AttrValue{realTokens(s.n)}
		}
		s.head = npy.AppendHeader(nil, to.descr(), s.n+s.pad)
	}
	if !f.ragged {
		s.extent = a.share(s)
	}
	out.Origin = f.Path + ": tokens " + strconv.FormatInt(s.first, 10) + " to " + strconv.FormatInt(s.first+s.n-1, 10)
	if f.form.head != nil {
		out.Origin = f.Path + ": row " + strconv.FormatInt(number+1, 10)
	}
	out.Fields = []writer.Field{{Name: a.field, Payload: s, Size: s.size()}}
	return out
}

// typeOf returns the type of an array's ids in samples.
func (a *arraySource) typeOf(f *array) DType {
	if a.opt.DType == 0 {
		return f.DType
	}
	return a.opt.DType
}

func realTokens(n int64) format.AttrValue {
	return format.AttrValue{Attribute: format.Attribute{Name: RealTokens, Kind: format.AttrInteger}, Integer: n}
}

// Cursor returns the number of the next sample.
func (a *arraySource) Cursor() string { return strconv.FormatInt(a.at, 10) }

// Seek moves to a cursor. It reads nothing.
func (a *arraySource) Seek(ctx context.Context, cursor string) error {
	var to int64
	if n, err := fmt.Sscanf(cursor, "%d", &to); err != nil || n != 1 || fmt.Sprint(to) != cursor || to < a.begin ||
		to > a.end {
		return fmt.Errorf("cursor %q is not one of the samples %d to %d", cursor, a.begin, a.end)
	}
	a.goTo(to)
	return ctx.Err()
}

func (a *arraySource) goTo(at int64) {
	a.at, a.extent = at, nil
	a.file = max(0, sort.Search(len(a.before), func(i int) bool { return a.before[i] > at })-1)
	a.file = min(a.file, len(a.arrays)-1)
}

// Split limits the source to part of parts, counted from 0. Sample i of n belongs to part ⌊i ×
// parts ÷ n⌋.
func (a *arraySource) Split(part, parts int) error {
	if parts < 1 || part < 0 || part >= parts {
		return fmt.Errorf("there is no part %d of %d: parts count from 0", part, parts)
	}
	n := a.before[len(a.arrays)]
	first := func(part int) int64 { // the least i of the part: ⌈part × n ÷ parts⌉
		return n - inputs.MulDiv(n, int64(parts-part), int64(parts))
	}
	a.begin, a.end = first(part), first(part+1)
	a.goTo(a.begin)
	return nil
}

// Fingerprint covers the options, and the names, sizes, versions and types of all files in order.
// The version of a local file is its modification time, of an object its ETag.
func (a *arraySource) Fingerprint() string { return "tokens:" + a.sum.String() }

// Meta states that the fields are arrays.
func (a *arraySource) Meta() format.Metadata {
	of := kinds.Kinds{}
	for _, name := range a.fields() {
		of[name] = "npy"
	}
	return of.Meta()
}

// Total returns the number of samples and the bytes of their fields without padding, of the current
// part after Split.
func (a *arraySource) Total() (samples, bytes int64) {
	_, bytes = a.count()
	samples = a.end - a.begin
	head := int64(len(npy.AppendHeader(nil, Int64.descr(), int64(1))))
	return samples, bytes + samples*head
}

// count returns the number of tokens in the samples from begin to end, and their size there.
func (a *arraySource) count() (tokens, bytes int64) {
	add := func(upTo, sign int64) {
		for i, f := range a.arrays {
			n := f.tokens()
			if part := upTo - a.before[i]; a.before[i+1] > upTo && f.ragged { // approximately
				n = inputs.MulDiv(n, part, f.samples)
			} else if a.before[i+1] > upTo {
				n = part * f.length
			}
			tokens, bytes = tokens+sign*n, bytes+sign*n*a.typeOf(f).size()
			if a.before[i+1] > upTo {
				return
			}
		}
	}
	add(a.end, 1)
	add(a.begin, -1)
	return tokens, bytes
}

// describe returns the source with the totals of all files.
func (a *arraySource) describe() *Arrays {
	out := &Arrays{Splitter: a, Samples: a.before[len(a.arrays)], DType: a.typeOf(a.arrays[0])}
	for _, f := range a.arrays {
		if a.opt.Length == 0 && f.row == nil && !f.ragged && out.Whole == "" {
			out.Whole = f.Path
		}
		out.Tokens += f.tokens()
		if !a.opt.Rows {
			out.Dropped += f.dropped()
		}
		if f.rest > 0 {
			out.Short++
		}
	}
	return out
}

// Close releases memory. It does not close the stores.
func (a *arraySource) Close() error {
	a.at, a.extent = a.end, nil
	a.closeArchive()
	return nil
}
