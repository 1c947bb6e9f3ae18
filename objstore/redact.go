package objstore

import (
	"regexp"
	"strconv"
	"strings"
)

var urls = regexp.MustCompile(`[a-zA-Z][a-zA-Z0-9+.-]*://[^\s"'<>]*`)

// Address is an address as a user gave it. Whatever prints, logs or encodes it leaves out its user,
// password and query, as [Redact] does. Secret alone returns all of it, for what opens it.
type Address struct{ secret *string } // a pointer: package fmt calls no methods of unexported members

// NewAddress returns the address that a text is. The text may also be a path, or end with the name
// of a view or a generation.
func NewAddress(text string) Address { return Address{&text} }

// Addresses is NewAddress for several.
func Addresses(texts []string) []Address {
	all := make([]Address, len(texts))
	for i, text := range texts {
		all[i] = NewAddress(text)
	}
	return all
}

// Secret returns the address with all that it holds.
func (a Address) Secret() string {
	if a.secret == nil {
		return ""
	}
	return *a.secret
}

// String returns the address without secrets.
func (a Address) String() string { return Redact(a.Secret()) }

// GoString is String, quoted.
func (a Address) GoString() string { return strconv.Quote(a.String()) }

// MarshalText is String.
func (a Address) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText takes an address with all that it holds.
func (a *Address) UnmarshalText(text []byte) error {
	*a = NewAddress(string(text))
	return nil
}

// Redact removes users, passwords and queries from the URLs in a text, such as an error that may
// quote one. A query may hold a signature, and its values are not known to be harmless. A text that
// is one address is an [Address].
func Redact(text string) string { return urls.ReplaceAllStringFunc(text, redactURL) }

func redactURL(url string) string {
	start := strings.Index(url, "://") + len("://")
	end := start + len(url[start:])
	if i := strings.IndexAny(url[start:], "/?#"); i >= 0 {
		end = start + i
	}
	if i := strings.LastIndexByte(url[start:end], '@'); i >= 0 && !isGeneration(url[start+i+1:end]) &&
		!isContainer(url, url[start:start+i]) {
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
