package tokens

// Piece and AppendPieces make documents.json.
type Piece = piece

var AppendPieces = appendPieces

// Stream makes Join stream documents of more than above bytes.
func Stream(j *Join, above int64) { j.ahead.small = above }

// Far reports whether documents are prefetched.
func Far(j *Join) bool { return j.ahead.far }
