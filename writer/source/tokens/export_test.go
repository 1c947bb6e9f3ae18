package tokens

// Piece and AppendPieces are of documents.json.
type Piece = piece

var AppendPieces = appendPieces

// Stream lets documents of more than so many bytes be streamed.
func Stream(j *Join, above int64) { j.ahead.small = above }

// Far says whether documents are read before their turn.
func Far(j *Join) bool { return j.ahead.far }
