package view

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/shardtool/shardtool/internal/sys/plain"
	"github.com/shardtool/shardtool/reader"
)

// lineSize is how much of a field Print shows.
const lineSize = 100

// Print writes a sample as text for people: its key and attributes, and a line for each field that
// says what it is. Of a large sample it reads the beginning of each field.
func Print(ctx context.Context, w io.Writer, ds *reader.Dataset, n uint64) error {
	c := (&Server{recent: newRecent()}).cards(ctx, &Source{Set: ds}, []uint64{n})[0]
	if c.err != nil {
		return c.err
	}
	if c.Removed {
		_, err := fmt.Fprintf(w, "number %d was removed\n", n)
		return err
	}
	fmt.Fprint(w, plain.Text(c.Key))
	for _, a := range c.Attrs {
		fmt.Fprintf(w, "  %s=%v", plain.Text(a.Name), a.Value)
	}
	fmt.Fprintln(w)
	for _, f := range c.Fields {
		if _, err := fmt.Fprintf(w, "  %s  %s  %s\n", plain.Text(f.Name), humanize.IBytes(f.Size),
			f.line()); err != nil {
			return err
		}
	}
	return nil
}

// line says in a line what a field is.
func (l *look) line() string {
	switch l.Kind {
	case "image":
		if l.Width > 0 {
			return fmt.Sprintf("%s, %d × %d pixels", l.Type, l.Width, l.Height)
		}
		return l.Type
	case "audio", "video":
		return l.Type
	case "array":
		return fmt.Sprintf("%s %s, %.5g to %.5g", l.Array.DType, l.Array.ShapeText(), l.Array.Least, l.Array.Top)
	case "json":
		return clean(l.Tree.String(), lineSize)
	case "hex":
		dump, _, _ := strings.Cut(strings.TrimPrefix(l.Text, "00000000  "), "  |")
		return strings.TrimSpace(dump)
	}
	return clean(strings.Join(strings.Fields(l.Text), " "), lineSize)
}

// String is the value as JSON, as far as it is kept.
func (n *node) String() string {
	name := ""
	if n.Name != "" {
		name = `"` + n.Name + `": `
	}
	if n.Brace == "" {
		return name + n.Value
	}
	var items []string
	for _, item := range n.Items {
		items = append(items, item.String())
	}
	if n.More {
		items = append(items, "…")
	}
	end := "]"
	if n.Brace == "{" {
		end = "}"
	}
	return name + n.Brace + strings.Join(items, ", ") + end
}
