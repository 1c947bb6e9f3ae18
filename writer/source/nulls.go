package source

import "errors"

// Nulls says what becomes of a row that has no value in any column that becomes a field: a sample
// has at least one field.
type Nulls int

const (
	// NullsFail makes such a row an error of its sample, which wraps ErrNulls.
	NullsFail Nulls = iota
	// NullsEmpty makes it a sample whose columns are fields of no bytes.
	NullsEmpty
	// NullsSkip leaves it out and counts it among the samples that were skipped, whatever is done on
	// errors.
	NullsSkip
)

// ErrNulls: a row has no value in any column that becomes a field.
var ErrNulls = errors.New("all columns are null: there is nothing to store")
