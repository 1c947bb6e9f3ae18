package tokens

import "github.com/shardtool/shardtool/writer"

// Piece and AppendPieces make documents.json.
type Piece = piece

var AppendPieces = appendPieces

// Stream makes a joined source stream documents of more than above bytes.
func Stream(j writer.Source, above int64) { j.(*joinSource).ahead.small = above }

// Far reports whether documents are prefetched.
func Far(j writer.Source) bool { return j.(*joinSource).ahead.far }
