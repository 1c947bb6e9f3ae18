package writer

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/internal/format/names"
)

// The samples that Faults.Skip leaves out are listed, one line of JSON each, in the order of the
// source (SPEC 6.4): all of them in an object beside the data set, and each shard's also in its
// index, for a later run that adopts the shard.

const (
	// maxBlockList and maxShardList bound the lists of a block and of a shard. Samples beyond that
	// are counted.
	maxBlockList = 1 << 20
	maxShardList = 4 << 20
	// maxReason bounds a reason, which may quote a long cause.
	maxReason = 4 << 10
	// maxListMemory is how much of the whole list is held in memory; the rest is in a temporary
	// file.
	maxListMemory = 1 << 20
)

// leftOut is a line of the list, and the number of the block's sample that it precedes.
type leftOut struct {
	before int
	line   []byte
}

// skippedLine is the line of a sample.
func skippedLine(e *SampleError) []byte {
	line := struct {
		Source    string `json:"source"`
		Row       int64  `json:"row,omitempty"`
		Key       string `json:"key,omitempty"`
		KeyBase64 []byte `json:"key_base64,omitempty"`
		Reason    string `json:"reason"`
	}{Source: cmp.Or(e.Source, e.Origin), Row: e.Row, Key: e.Key, Reason: e.Err.Error()}
	if len(line.Reason) > maxReason {
		line.Reason = strings.ToValidUTF8(line.Reason[:maxReason], "") + "…"
	}
	if !utf8.ValidString(line.Key) { // JSON strings are UTF-8
		line.KeyBase64 = []byte(line.Key)
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(&line); err != nil { // strings and a number always encode
		panic("writer: list of skipped samples: " + err.Error())
	}
	return out.Bytes()
}

// skippedList is the list of a shard being written.
type skippedList struct {
	lines []byte
	more  int64
}

func (l *skippedList) add(line []byte) {
	if len(l.lines)+len(line) > maxShardList {
		l.more++
		return
	}
	l.lines = append(l.lines, line...)
}

// text ends the list with the number of samples that it lacks.
func (l *skippedList) text() []byte {
	if l.more > 0 {
		l.lines = fmt.Appendf(l.lines, "{\"more\":%d}\n", l.more)
		l.more = 0
	}
	return l.lines
}

// quarantine collects the lists of all shards.
type quarantine struct{ spool }

func newQuarantine(dir string) quarantine { return quarantine{spool{dir: dir, room: maxListMemory}} }

func (q *quarantine) add(lines []byte) error {
	if len(lines) == 0 {
		return nil
	}
	if _, err := q.Write(lines); err != nil {
		return fmt.Errorf("the list of skipped samples: %w", err)
	}
	return nil
}

// put stores the list. The name is empty if nothing was skipped.
func (q *quarantine) put(ctx context.Context, to *puts) (name string, err error) {
	if q.size == 0 {
		return "", nil
	}
	sum, err := q.spool.put(ctx, to, names.Skipped)
	if err != nil {
		return "", fmt.Errorf("the list of skipped samples: %w", err)
	}
	return names.Skipped(sum), nil
}

// metaSkippedList is the key in a generation's metadata of its lists: first the lists of the
// generations that it appends to, then its own.
const metaSkippedList = "skipped_list"

// skippedLists are the lists that a generation names. Metadata is free text, so other words are
// ignored.
func skippedLists(t *metadata.Totals) (lists []string) {
	for _, name := range strings.Fields(t.Meta[metaSkippedList]) {
		if names.IsSkipped(name) {
			lists = append(lists, name)
		}
	}
	return lists
}

func lastWord(s string) string { return s[strings.LastIndexByte(s, ' ')+1:] }
