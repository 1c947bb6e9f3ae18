package parquet

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/parquet/metadata"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/writer/source/internal/inputs"
)

// parquetFile is what stays in memory of a file: the sizes of its row groups, and its columns,
// which files with the same schema share.
type parquetFile struct {
	inputs.File
	rows    []int64
	bytes   []int64 // decoded size
	schema  string
	columns []*node
	byName  map[string]*node
	labels  map[string][]string
	// features are the types of the columns as JSON, empty where they have none.
	features []string
	// forms are the tensors of the columns, which the schema does not have.
	forms string
	// each is, by leaf, how many values each row has, 0 where rows differ or the footer does not tell.
	each []int64
	// nulls is, by column, whether it may have nulls.
	nulls []bool
	// messages of an Arrow file; rows and bytes are then of its records.
	messages []message
}

func (f *parquetFile) column(name string) *node { return f.byName[name] }

// unit is what errors call a part of rows.
func (f *parquetFile) unit() string {
	if f.messages != nil {
		return "record batch"
	}
	return "row group"
}

// survey reads a file's footer.
func (f *parquetFile) survey(ctx context.Context) error {
	obj, err := f.Open(ctx)
	if err != nil {
		return err
	}
	defer obj.Close()
	if f.isArrow() {
		return f.surveyArrow(ctx, obj)
	}
	meta, err := readFooter(&readerAt{ctx: ctx, obj: obj}, f.Info.Size)
	if err != nil {
		return err
	}
	return protect(func() error {
		f.columns = columns(meta.Schema)
		var text strings.Builder
		for _, c := range f.columns {
			fmt.Fprintf(&text, "%q %v %d-%d, ", c.name, c, c.first, c.last)
		}
		huggingface := ""
		if value := meta.KeyValueMetadata().FindValue("huggingface"); value != nil {
			huggingface = *value
		}
		var schema *arrow.Schema
		if value := meta.KeyValueMetadata().FindValue("ARROW:schema"); value != nil {
			schema = arrowSchema(*value)
		}
		f.label(&text, huggingface, schema)
		// Files with the same schema also have the same leaves.
		for i := range meta.Schema.NumColumns() {
			c := meta.Schema.Column(i)
			fmt.Fprintf(&text, "%s %v %d %d %d, ", c.Path(), c.PhysicalType(), c.TypeLength(), c.MaxDefinitionLevel(),
				c.MaxRepetitionLevel())
		}
		f.index(text.String())
		f.rows = make([]int64, len(meta.RowGroups))
		f.bytes = make([]int64, len(meta.RowGroups))
		for i, g := range meta.RowGroups {
			f.rows[i], f.bytes[i] = g.GetNumRows(), max(0, g.GetTotalByteSize())
		}
		f.each = valuesEach(meta)
		f.nulls = nullsOf(meta, f.columns)
		return nil
	})
}

// label sets the tensors and features of columns by the schema of Arrow and the metadata of Hugging
// Face, and adds the class labels to the description of the schema.
func (f *parquetFile) label(text *strings.Builder, meta string, schema *arrow.Schema) {
	stated := featuresOf(meta)
	f.setTensors(schema, stated)
	f.labels = classLabels(stated)
	for _, c := range f.columns {
		f.features = append(f.features, c.feature(stated[c.name]))
	}
	for _, name := range slices.Sorted(maps.Keys(f.labels)) {
		fmt.Fprintf(text, "%q %q, ", name, f.labels[name])
	}
}

// index sets the description of the schema, and finds columns by name.
func (f *parquetFile) index(schema string) {
	f.schema = schema
	f.byName = make(map[string]*node, len(f.columns))
	for _, c := range f.columns {
		f.byName[c.name] = c
	}
}

// arrowEndings are the extensions of Arrow files and streams.
var arrowEndings = []string{".arrow", ".arrows", ".feather", ".ipc"}

// isArrow reports whether a file is read as Arrow.
func (f *parquetFile) isArrow() bool {
	return slices.Contains(arrowEndings, cmp.Or(f.As, strings.ToLower(path.Ext(f.Path))))
}

// surveyArrow lists the messages of a file, whose records stand for row groups.
func (f *parquetFile) surveyArrow(ctx context.Context, obj objstore.Object) error {
	r := &readerAt{ctx: ctx, obj: obj}
	list, nulls, err := messages(r, f.Info.Size)
	if err != nil {
		return err
	}
	in := &arrowReader{list: list, at: r}
	var schema *arrow.Schema
	if err := r.protect(func() error {
		schema, err = in.restart()
		return err
	}); err != nil {
		return err
	}
	f.messages = list
	for _, m := range list {
		if m.kind == ipcRecords {
			f.rows, f.bytes = append(f.rows, m.rows), append(f.bytes, m.body)
		}
	}
	var b arrowTypes
	var text strings.Builder
	text.WriteString("arrow ")
	f.nulls = make([]bool, len(schema.Fields()))
	part := 0
	for i, field := range schema.Fields() {
		f.nulls[i] = nulls[part]
		part += parts(field.Type)
		n := b.node(field, 0, 0)
		f.columns = append(f.columns, n)
		fmt.Fprintf(&text, "%q %v, ", n.name, field.Type)
	}
	f.each = b.each
	meta, ok := schema.Metadata().GetValue("huggingface")
	if !ok {
		meta = f.infoBeside(ctx)
	}
	f.label(&text, meta, schema)
	f.index(text.String())
	return nil
}

// parts is how many parts of a type state their nulls.
func parts(t arrow.DataType) int {
	if t.ID() == arrow.DICTIONARY { // whose values are stored apart
		return 1
	}
	n := 1
	if nested, ok := plainType(t).(arrow.NestedType); ok {
		for _, f := range nested.Fields() {
			n += parts(f.Type)
		}
	}
	return n
}

// nullsOf returns, by column, whether one may have nulls: if its type allows them, unless all row
// groups state that they have none.
func nullsOf(meta *metadata.FileMetaData, columns []*node) []bool {
	out := make([]bool, len(columns))
	for i, n := range columns {
		if n.def == 0 || n.shape != shapeScalar {
			continue
		}
		for _, g := range meta.RowGroups {
			stats := g.Columns[n.first].GetMetaData().GetStatistics()
			out[i] = out[i] || g.GetNumRows() > 0 && (stats == nil || stats.NullCount == nil || *stats.NullCount != 0)
		}
	}
	return out
}

// mayBeNull reports whether rows of the file may have no value in a column.
func (f *parquetFile) mayBeNull(column string) bool {
	if !slices.ContainsFunc(f.rows, func(rows int64) bool { return rows > 0 }) {
		return false
	}
	for _, c := range f.Constants {
		if c.Name == column && c.Folder != "" {
			return c.Null
		}
	}
	n := f.column(column)
	return n == nil || n.isNull() || f.nulls[slices.Index(f.columns, n)]
}

// infoBeside returns the description that save_to_disk writes beside files, in the form of the one
// in their schemas, or "".
func (f *parquetFile) infoBeside(ctx context.Context) string {
	b, _, err := objstore.ReadAll(ctx, f.Store, path.Join(path.Dir(f.Name), "dataset_info.json"), maxIPCMeta)
	if err != nil {
		return ""
	}
	return `{"info":` + string(b) + "}"
}

// valuesEach returns, by leaf, how many values each row has, or 0. Row groups without rows do not
// count.
func valuesEach(meta *metadata.FileMetaData) []int64 {
	each := make([]int64, meta.Schema.NumColumns())
	for k := range each {
		for _, g := range meta.RowGroups {
			rows := g.GetNumRows()
			if rows == 0 {
				continue
			}
			values := g.Columns[k].GetMetaData().GetNumValues()
			if values%rows != 0 || each[k] > 0 && each[k] != values/rows {
				each[k] = 0
				break
			}
			each[k] = values / rows
		}
	}
	return each
}
