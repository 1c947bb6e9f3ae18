package parquet

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"

	pq "github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/metadata"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore"
)

const (
	// footerTail is the size of the footer's length and the magic after it.
	footerTail = 8
	// minFile is the size of the leading magic and an empty footer.
	minFile = 4 + footerTail
	// tailGuess is the size of the first read from the end of a file. Most footers fit.
	tailGuess = 64 << 10
	// maxFooter and maxStructs bound a footer: 100,000 row groups of 10 columns take about 50 MiB.
	maxFooter  = 256 << 20
	maxStructs = 8 << 20
	// maxDepth bounds the nesting of columns, because the library recurses.
	maxDepth = 100
)

// corruptf returns an error in the content of a file.
func corruptf(msg string, args ...any) error {
	return fmt.Errorf("%w: %w", format.ErrCorrupt, fmt.Errorf(msg, args...))
}

// errEncrypted is returned for every encrypted file, because there is no way to pass a key.
var errEncrypted = errors.New("the file is encrypted, which this version does not read: decrypt it first")

// protect runs f and converts a panic to an error: the library panics on some damaged files. Only
// protect recovers; its callers add file, row group, column and row.
func protect(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: it does not decode%w", format.ErrCorrupt, &panicked{r})
		}
	}()
	return f()
}

// panicked is the value of a panic. The text of a Go run-time error does not help a user and is
// omitted; errors.As finds the error.
type panicked struct{ value any }

func (p *panicked) Error() string {
	if _, ok := p.value.(runtime.Error); ok {
		return ": its bytes do not match its headers"
	}
	return fmt.Sprintf(": %v", p.value)
}

func (p *panicked) Unwrap() error {
	err, _ := p.value.(error)
	return err
}

// readerAt is an object as an io.ReaderAt. ctx is the context of the current call.
type readerAt struct {
	ctx context.Context
	obj objstore.Object
	// err is the last error of the store, as opposed to errors in the file's content.
	err error
}

func (r *readerAt) ReadAt(p []byte, off int64) (int, error) {
	if err := r.obj.ReadAt(r.ctx, p, off); err != nil {
		r.err = err
		return 0, err
	}
	return len(p), nil
}

// protect runs f, and returns the error of the store where there is one.
func (r *readerAt) protect(f func() error) error {
	err := protect(f)
	if r.err != nil {
		return r.err
	}
	return err
}

// readFooter reads and checks the footer of a file of size bytes.
func readFooter(r *readerAt, size int64) (meta *metadata.FileMetaData, err error) {
	if size < minFile {
		return nil, corruptf("%d bytes are too few for a Parquet file: download or write it again", size)
	}
	tail := make([]byte, min(size, tailGuess))
	if _, err := r.ReadAt(tail, size-int64(len(tail))); err != nil {
		return nil, err
	}
	switch magic := string(tail[len(tail)-4:]); magic {
	case "PAR1":
	case "PARE":
		return nil, errEncrypted
	default:
		return nil, corruptf("it ends with %q instead of \"PAR1\": the file is truncated, or is not Parquet", magic)
	}
	n := int64(binary.LittleEndian.Uint32(tail[len(tail)-footerTail:]))
	switch {
	case n > size-minFile:
		return nil, corruptf("its last bytes claim a footer of %d bytes in a file of %d", n, size)
	case n > maxFooter:
		return nil, fmt.Errorf("its footer has %d bytes, this version reads %d: write larger row groups", n, maxFooter)
	case n+footerTail > int64(len(tail)):
		tail = make([]byte, n+footerTail)
		if _, err := r.ReadAt(tail, size-int64(len(tail))); err != nil {
			return nil, err
		}
	}
	footer := tail[int64(len(tail))-footerTail-n : len(tail)-footerTail]
	if footer, err = checkFooter(footer); err != nil {
		return nil, corruptf("its footer: %w", err)
	}
	err = protect(func() error {
		if meta, err = metadata.NewFileMetaData(footer, nil); err != nil {
			return corruptf("its footer: %w", err)
		}
		if meta.IsSetEncryptionAlgorithm() {
			return errEncrypted
		}
		if meta.Schema == nil || meta.Schema.Root() == nil {
			return corruptf("its footer: the columns do not make a schema")
		}
		return checkGroups(meta, size)
	})
	return meta, err
}

// checkTree checks that the numbers of children, in depth-first order, form one tree.
func checkTree(children []int64) error {
	open := []int64{1} // missing children of each node from the root on
	for _, n := range children {
		for len(open) > 0 && open[len(open)-1] == 0 {
			open = open[:len(open)-1]
		}
		if len(open) == 0 || n < 0 || n > int64(len(children)) {
			return errors.New("the columns do not make a tree")
		}
		open[len(open)-1]--
		if n > 0 {
			open = append(open, n)
		}
		if len(open) > maxDepth {
			return fmt.Errorf("columns nest deeper than %d", maxDepth)
		}
	}
	for _, n := range open {
		if n != 0 {
			return errors.New("the columns do not make a tree")
		}
	}
	return nil
}

// checkGroups checks row groups against the schema and the size of the file.
func checkGroups(meta *metadata.FileMetaData, size int64) error {
	total := int64(0)
	for i, g := range meta.RowGroups {
		bad := func(msg string, args ...any) error {
			return corruptf("row group %d: %w", i, fmt.Errorf(msg, args...))
		}
		rows, columns := g.GetNumRows(), meta.Schema.NumColumns()
		if rows < 0 || rows > 1<<56 || len(g.Columns) != columns {
			return bad("its footer claims %d rows and %d columns, the schema has %d columns", rows, len(g.Columns),
				columns)
		}
		total += rows
		if total > 1<<56 {
			return bad("its footer claims too many rows")
		}
		group := meta.RowGroup(i)
		for k := range columns {
			col := meta.Schema.Column(k)
			if g.Columns[k].CryptoMetadata != nil {
				return errEncrypted
			}
			chunk, err := group.ColumnChunk(k)
			if err != nil {
				return bad("column %s: %w", col.Path(), err)
			}
			start, length := chunkRange(chunk)
			values := chunk.NumValues()
			switch {
			case chunk.FilePath() != "":
				return bad("column %s: it is in another file, which this version does not read", col.Path())
			case chunk.Type() != col.PhysicalType():
				return bad("column %s: its values are of type %v, the schema declares %v", col.Path(), chunk.Type(),
					col.PhysicalType())
			case col.PhysicalType() == pq.Types.FixedLenByteArray && col.TypeLength() <= 0:
				return bad("column %s: its values are %d bytes long", col.Path(), col.TypeLength())
			case values < 0 || col.MaxRepetitionLevel() == 0 && values != rows || values < rows:
				return bad("column %s: the footer claims %d values in %d rows", col.Path(), values, rows)
			case values > 0 && (start < 4 || length <= 0 || start > size-footerTail || length > size-footerTail-start):
				return bad("column %s: the footer claims %d bytes at %d, the file has %d", col.Path(), length, start,
					size)
			}
		}
	}
	return nil
}

// chunkRange returns the position of a column chunk's pages.
func chunkRange(chunk *metadata.ColumnChunkMetaData) (start, length int64) {
	start = chunk.DataPageOffset()
	if at := chunk.DictionaryPageOffset(); chunk.HasDictionaryPage() && at > 0 && at < start {
		start = at
	}
	return start, chunk.TotalCompressedSize()
}

// uncounted returns the number of bytes that the length of a column chunk may lack: parquet-mr
// before 1.2.9 did not count the header of the dictionary page (PARQUET-816).
func uncounted(meta *metadata.FileMetaData) int64 {
	if meta.WriterVersion().LessThan(metadata.NewAppVersionExplicit("parquet-mr", 1, 2, 9)) {
		return 100
	}
	return 0
}
