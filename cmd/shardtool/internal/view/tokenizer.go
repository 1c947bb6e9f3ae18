package view

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Tokenizer turns token ids into text. It reads the vocabulary of a tokenizer.json, as the
// tokenizers library writes it, and undoes the three common ways to write bytes in it.
type Tokenizer struct {
	pieces map[int64]string
	join   func(piece string) string
}

// maxTokenizer bounds the file: the largest ones in use have some 40 MB.
const maxTokenizer = 256 << 20

// ReadTokenizer reads a tokenizer.json.
func ReadTokenizer(name string) (*Tokenizer, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxTokenizer {
		return nil, fmt.Errorf("%s: a tokenizer.json has at most %d bytes", name, maxTokenizer)
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var file struct {
		Model struct {
			Type  string          `json:"type"`
			Vocab json.RawMessage `json:"vocab"`
		} `json:"model"`
		Added []struct {
			ID      int64  `json:"id"`
			Content string `json:"content"`
		} `json:"added_tokens"`
		Decoder json.RawMessage `json:"decoder"`
	}
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, fmt.Errorf("%s: it is not a tokenizer.json: %w", name, err)
	}
	t := &Tokenizer{pieces: map[int64]string{}}
	var ids map[string]int64
	var list [][2]json.RawMessage // of a Unigram model: pieces with scores
	switch {
	case json.Unmarshal(file.Model.Vocab, &ids) == nil:
		for piece, id := range ids {
			t.pieces[id] = piece
		}
	case json.Unmarshal(file.Model.Vocab, &list) == nil:
		for id, entry := range list {
			var piece string
			if err := json.Unmarshal(entry[0], &piece); err != nil {
				return nil, fmt.Errorf("%s: model.vocab[%d]: %w", name, id, err)
			}
			t.pieces[int64(id)] = piece
		}
	default:
		return nil, fmt.Errorf("%s: model.vocab is neither a map of pieces to ids nor a list of pieces", name)
	}
	switch decoder := string(file.Decoder); {
	case strings.Contains(decoder, `"ByteLevel"`):
		t.join = byteLevel()
	case file.Model.Type == "WordPiece":
		t.join = func(piece string) string {
			if rest, ok := strings.CutPrefix(piece, "##"); ok {
				return rest
			}
			return " " + piece
		}
	default: // Metaspace, with single bytes as <0xNN>
		t.join = func(piece string) string {
			if b, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimPrefix(piece, "<0x"), ">"), 16,
				8); err == nil && len(piece) == 6 && strings.HasPrefix(piece, "<0x") {
				return string([]byte{byte(b)})
			}
			return strings.ReplaceAll(piece, "▁", " ")
		}
	}
	plain := t.join
	added := map[string]bool{}
	for _, a := range file.Added {
		t.pieces[a.ID] = a.Content
		added[a.Content] = true
	}
	t.join = func(piece string) string {
		if added[piece] {
			return piece
		}
		return plain(piece)
	}
	return t, nil
}

// byteLevel undoes the table of GPT-2, in which every byte is a printable character: the 188
// printable ones of Latin-1 are themselves, and the others follow from U+0100 on.
func byteLevel() func(piece string) string {
	of := map[rune]byte{}
	next := rune(0x100)
	for b := range 256 {
		r := rune(b)
		if !(r >= '!' && r <= '~' || r >= '¡' && r <= '¬' || r >= '®' && r <= 'ÿ') {
			r = next
			next++
		}
		of[r] = byte(b)
	}
	return func(piece string) string {
		out := make([]byte, 0, len(piece))
		for _, r := range piece {
			if b, ok := of[r]; ok {
				out = append(out, b)
			} else {
				out = utf8.AppendRune(out, r)
			}
		}
		return string(out)
	}
}

// Text returns the text of ids. An id that is not in the vocabulary is written as ⟨id⟩.
func (t *Tokenizer) Text(ids []int64) string {
	var b strings.Builder
	for _, id := range ids {
		if piece, ok := t.pieces[id]; ok {
			b.WriteString(t.join(piece))
		} else {
			fmt.Fprintf(&b, "⟨%d⟩", id)
		}
	}
	return clean(b.String(), textSize)
}
