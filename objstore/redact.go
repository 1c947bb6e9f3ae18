package objstore

import (
	"regexp"
	"strings"
)

var urls = regexp.MustCompile(`[a-zA-Z][a-zA-Z0-9+.-]*://[^\s"'<>]*`)

// Redact removes users, passwords and queries from the URLs in a text, which may be one address. A
// query may hold a signature, and its values are not known to be harmless. Everything that prints
// an address that a user gave, or a text that may quote one, passes it through Redact.
func Redact(text string) string { return urls.ReplaceAllStringFunc(text, redactURL) }

func redactURL(url string) string {
	start := strings.Index(url, "://") + len("://")
	end := start + len(url[start:])
	if i := strings.IndexAny(url[start:], "/?#"); i >= 0 {
		end = start + i
	}
	if i := strings.LastIndexByte(url[start:end], '@'); i >= 0 && !isGeneration(url[start+i+1:end]) && !isContainer(url, url[start:start+i]) {
		url = url[:start] + url[start+i+1:]
	}
	before, query, ok := strings.Cut(url, "?")
	if !ok {
		return url
	}
	// The view or the generation that follows the query of a data set's address stays, and so does
	// the punctuation of the sentence.
	after := query[len(strings.TrimRight(query, ".,:;)]")):]
	query = query[:len(query)-len(after)]
	if i := strings.IndexByte(query, '#'); i >= 0 {
		after = query[i:] + after
	} else if i := strings.LastIndexByte(query, '@'); i >= 0 && isGeneration(query[i+1:]) {
		after = query[i:] + after
	}
	return before + after
}

// isContainer reports whether the text before the @ of a URL is a container, as in
// abfss://container@account.dfs.core.windows.net/prefix.
func isContainer(url, before string) bool {
	return strings.HasPrefix(strings.ToLower(url), "abfs") && !strings.Contains(before, ":")
}

// isGeneration reports whether a text is the name of a generation: 16 hexadecimal digits.
func isGeneration(text string) bool {
	return len(text) == 16 && strings.Trim(text, "0123456789abcdef") == ""
}
