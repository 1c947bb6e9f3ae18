package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/shardtool/shardtool/cmd/shardtool/internal/explain"
)

// keyText is the key of a sample, or why it has none.
func keyText(x *explain.Sample) string {
	switch {
	case x.Padding:
		return "(padding)"
	case x.Removed:
		return "(removed)"
	}
	return shown(x.Key)
}

// printPieces prints the samples of units, and their pieces.
func printPieces(w io.Writer, s *explain.Step) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "\nPOSITION\tRANK\tROW\tSOURCE\tEPOCH\tSHARD\tBLOCK\tNUMBER\tOFFSET\tLENGTH\tKEY")
	for i := range s.Samples {
		x := &s.Samples[i]
		fmt.Fprintf(t, "%d\t%d\t%d\t%s\t%d\t%s\t%d\t%d\t%d\t%d\t%s\n", x.Position, x.Rank, *x.Row, x.Source, x.Epoch, shown(x.Shard), x.Block, x.Number, *x.Offset, *x.Length, keyText(x))
	}
	return t.Flush()
}
