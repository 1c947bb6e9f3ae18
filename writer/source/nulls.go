package source

import (
	"github.com/shardtool/shardtool/hint"
)

// Nulls selects what happens to a row without a value in any column that becomes a field: a sample
// needs at least one field.
type Nulls int

const (
	// NullsFail makes the row a *writer.SampleError, which wraps ErrNulls.
	NullsFail Nulls = iota
	// NullsEmpty makes it a sample whose fields are empty.
	NullsEmpty
	// NullsSkip leaves the row out and counts it as skipped, whatever the policy for errors.
	NullsSkip
)

// ErrNulls means that a row has no value in any column that becomes a field.
var ErrNulls = hint.New("all columns are null: there is nothing to store",
	hint.Set("nulls", "empty", "keeps such rows, with fields of no bytes"),
	hint.Set("nulls", "skip", "leaves them out"))
