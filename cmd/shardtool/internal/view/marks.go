package view

import (
	"context"
	"fmt"
	"html/template"
	"net/http"
	"strconv"
	"strings"
)

// maxMarks bounds the samples that are marked.
const maxMarks = 100_000

// marksPage lists the marked samples of a source.
type marksPage struct {
	Lists []markList
}

type markList struct {
	Source  *Source
	Numbers string // separated by commas
	Keys    []string
	Quoted  string // the address, for a shell
}

// marks shows the marked samples, which the browser keeps, or answers with their keys as a file.
func (s *Server) marks(w http.ResponseWriter, r *http.Request, t *template.Template) {
	ctx, cancel := context.WithTimeout(r.Context(), deadline)
	defer cancel()
	r.Body = http.MaxBytesReader(w, r.Body, 4<<20)
	r = r.WithContext(ctx)
	p, err := s.marked(r)
	if err == nil && r.PostFormValue("save") != "" && len(p.Lists) == 1 {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Content-Disposition", `attachment; filename="marks.txt"`)
		for _, key := range p.Lists[0].Keys {
			_, _ = fmt.Fprintln(w, key)
		}
		return
	}
	s.write(w, t, "marks", p, err)
}

// marked reads the keys of the samples that a form lists by source.
func (s *Server) marked(r *http.Request) (*marksPage, error) {
	if r.Method != http.MethodGet && r.Method != http.MethodPost {
		return nil, problem{http.StatusMethodNotAllowed, fmt.Errorf("%s is not for marks", r.Method)}
	}
	if err := r.ParseForm(); err != nil {
		return nil, problem{http.StatusBadRequest, err}
	}
	p := &marksPage{}
	for i := range s.Sources {
		of := &s.Sources[i]
		text := r.PostForm.Get("marks-" + of.Name)
		if text == "" {
			continue
		}
		var numbers []uint64
		for word := range strings.SplitSeq(text, ",") {
			n, err := strconv.ParseUint(word, 10, 64)
			if err != nil || n >= of.Set.NumSamples() || len(numbers) == maxMarks {
				return nil, wrong("marks: %q is no sample, or there are more than %d", clean(word, 40), maxMarks)
			}
			numbers = append(numbers, n)
		}
		all, err := of.Set.Keys(r.Context(), numbers)
		if err != nil {
			return nil, err
		}
		list := markList{Source: of, Numbers: text, Quoted: quoted(of.Address.String())}
		for _, key := range all {
			if key != "" { // removed since
				list.Keys = append(list.Keys, key)
			}
		}
		p.Lists = append(p.Lists, list)
	}
	return p, nil
}

// quoted writes a word for a POSIX shell.
func quoted(word string) string {
	safe := func(r rune) bool {
		return r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' ||
			strings.ContainsRune("_-./:=@%+,", r)
	}
	if word != "" && strings.IndexFunc(word, func(r rune) bool { return !safe(r) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
