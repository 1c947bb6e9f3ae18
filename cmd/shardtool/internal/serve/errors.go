package serve

import (
	"errors"
	"fmt"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/hint"
	"github.com/shardtool/shardtool/internal/curate/view"
	"github.com/shardtool/shardtool/internal/order/ledger"
	"github.com/shardtool/shardtool/internal/order/mix"
	"github.com/shardtool/shardtool/internal/sys/plain"
	"github.com/shardtool/shardtool/objstore"
)

// ErrConfig is returned for requests that cannot be served. Options.Code gives it the exit code of
// wrong usage.
var ErrConfig = errors.New("configuration")

// configf returns an ErrConfig with a text of its own.
func configf(msg string, args ...any) error {
	return fmt.Errorf("%w%w", fmt.Errorf(msg, args...), plain.Silent(ErrConfig))
}

// decodeError reports a payload that does not match the type of its column.
type decodeError struct {
	source     int    // its number in a mix
	number     uint64 // of the sample in the data set
	key, field string
	err        error
}

func (e *decodeError) Error() string {
	return fmt.Sprintf("sample %q: field %q: %v", e.key, e.field, e.err)
}

func (e *decodeError) Unwrap() error { return e.err }

// problem is the body of ERROR.
type problem struct {
	Kind    string `json:"kind"`
	Message string `json:"message"`
	Shard   string `json:"shard,omitempty"`
	Block   *int   `json:"block,omitempty"`
	Offset  *int64 `json:"offset,omitempty"`
	Key     string `json:"key,omitempty"`
	Field   string `json:"field,omitempty"`
	Source  string `json:"source,omitempty"`
	// Hints are for the parent to spell.
	Hints []hint.Hint `json:"hints,omitempty"`
}

// Exit codes of the command line that distinguish kinds of errors.
const (
	codeFailed     = 1
	codeUsage      = 2
	codeCorrupt    = 3
	codeNotFound   = 6
	codeCheckpoint = 7
)

// describe makes the report of an error for the parent. code is the exit code of the command line,
// which knows most errors.
func describe(err error, code int) (p problem, _ uint32) {
	p.Message = plain.Line(objstore.Redact(err.Error()))
	p.Hints = hint.Of(err)
	var protocol protocolError
	var decode *decodeError
	switch {
	case errors.As(err, &protocol):
		p.Kind, code = "protocol", codeUsage
	case errors.As(err, &decode):
		p.Kind, p.Key, p.Field, code = "decode", decode.key, decode.field, codeFailed
	case errors.Is(err, ErrConfig), errors.Is(err, view.ErrEmpty), code == codeUsage:
		p.Kind, code = "config", codeUsage
	case errors.Is(err, ledger.ErrFull):
		p.Kind = "skipped"
	case code == codeCorrupt:
		p.Kind = "corrupt"
	case code == codeNotFound:
		p.Kind = "not_found"
	case code == codeCheckpoint:
		p.Kind = "checkpoint"
	default:
		p.Kind, code = "failed", codeFailed
		if errors.Is(err, format.ErrTooLarge) {
			p.Hints = append(p.Hints, hint.Option("memory"))
		}
	}
	if source, ok := errors.AsType[*mix.SourceError](err); ok {
		p.Source = source.Source
	}
	if at, ok := errors.AsType[*format.PosError](err); ok {
		p.Shard = at.Shard
		if at.Key != "" {
			p.Key = at.Key
		}
		if at.Block >= 0 {
			p.Block = &at.Block
		}
		if at.Offset >= 0 {
			p.Offset = &at.Offset
		}
	}
	return p, uint32(code)
}
