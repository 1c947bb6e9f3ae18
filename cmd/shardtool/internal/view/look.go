package view

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"image"
	_ "image/gif"  // sizes of images
	_ "image/jpeg" // sizes of images
	_ "image/png"  // sizes of images
	"io"
	"net/http"
	"path"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/shardtool/shardtool/internal/format/npy"
)

const (
	// headSize is how much of a field decides what it is.
	headSize = 64 << 10
	// imageHead is how much of an image is read where its size in pixels comes later, after a profile
	// of colors or a preview.
	imageHead = 1 << 20
	// textSize is how much of a text is shown, and hexSize how much of anything else.
	textSize = 16 << 10
	hexSize  = 256
	// maxPixels bounds the images that a browser is asked to decode: it takes 4 bytes for a pixel.
	maxPixels = 64 << 20
	// maxNodes and maxDepth bound the tree of a JSON value.
	maxNodes = 400
	maxDepth = 12
)

// look is a field as a page shows it. What it is follows from its bytes. The name decides only
// between a text and JSON.
type look struct {
	Kind   string // image, audio, video, text, json, array or hex
	Type   string // media type, for image, audio and video
	Text   string // of text, and the dump of hex
	Tree   *node
	Array  *array
	Tokens string // the text of token ids
	Note   string // why less is shown than there is
	Width  int
	Height int
	later  bool // more of an image has to be read
}

// lookOf decides how a field is shown, from as much of its beginning as that takes.
func lookOf(name string, size uint64, tokens *Tokenizer, head func(most int64) ([]byte, error)) (look, error) {
	data, err := head(headSize)
	if err != nil {
		return look{}, err
	}
	l := lookAt(name, data, size, tokens)
	if l.later {
		if data, err = head(imageHead); err == nil {
			l = lookAt(name, data, size, tokens)
		}
	}
	return l, err
}

// lookAt decides how a field is shown. head is its beginning: all of it, or headSize bytes.
func lookAt(name string, head []byte, size uint64, tokens *Tokenizer) look {
	whole := uint64(len(head)) == size
	if kind, media := mediaType(head); kind != "" {
		l := look{Kind: kind, Type: media}
		if kind == "image" {
			l.Width, l.Height = pixels(head)
			if uint64(l.Width)*uint64(l.Height) > maxPixels {
				return dump(head, size,
					"an image of "+strconv.Itoa(l.Width)+" × "+strconv.Itoa(l.Height)+" pixels is not decoded")
			}
			if l.Width == 0 && media != "image/avif" {
				l := dump(head, size, "its size in pixels cannot be read")
				l.later = !whole && len(head) < imageHead
				return l
			}
		}
		return l
	}
	if bytes.HasPrefix(head, []byte(npy.Magic)) {
		if a, err := readArray(head, size); err == nil {
			l := look{Kind: "array", Array: a}
			if tokens != nil && a.ids != nil {
				l.Tokens = tokens.Text(a.ids)
			}
			a.values, a.ids = nil, nil // a page has many arrays
			return l
		}
	}
	text, ok := textOf(head, whole)
	if !ok {
		return dump(head, size, "")
	}
	if whole && (strings.HasSuffix(path.Ext("."+name), "json") || len(text) > 1 && (text[0] == '{' || text[0] == '[')) {
		if tree := treeOf(head); tree != nil {
			return look{Kind: "json", Tree: tree}
		}
	}
	l := look{Kind: "text", Text: text}
	if len(text) > textSize {
		l.Text = strings.ToValidUTF8(text[:textSize], "")
	}
	if !whole || len(text) > textSize {
		l.Note = "the first " + strconv.Itoa(len(l.Text)) + " of " + strconv.FormatUint(size, 10) + " bytes"
	}
	return l
}

// mediaType names a type that a browser shows without executing anything in it. SVG and HTML are
// texts.
func mediaType(head []byte) (kind, media string) {
	media, _, _ = strings.Cut(http.DetectContentType(head), ";")
	switch {
	case bytes.HasPrefix(head, []byte("fLaC")):
		media = "audio/flac"
	case len(head) > 12 && string(head[4:8]) == "ftyp":
		media = brand(string(head[8:12]))
	case len(head) > 2 && head[0] == 0xff && head[1]&0xe6 == 0xe2: // MPEG audio, layer III
		media = "audio/mpeg"
	case media == "application/ogg":
		media = "audio/ogg"
	}
	switch media {
	case "image/png", "image/jpeg", "image/gif", "image/webp", "image/bmp", "image/avif",
		"audio/wave", "audio/mpeg", "audio/ogg", "audio/flac", "audio/mp4", "video/mp4", "video/webm":
		kind, _, _ = strings.Cut(media, "/")
		return kind, media
	}
	return "", ""
}

// brand is the type of an ISO base media file, by the major brand in its first box.
func brand(name string) string {
	switch name {
	case "avif", "avis":
		return "image/avif"
	case "heic", "heix", "mif1", "msf1": // browsers do not show these
		return ""
	case "M4A ", "M4B ":
		return "audio/mp4"
	}
	return "video/mp4"
}

// pixels reads the size of an image out of its header, without decoding it; 0 where that fails.
func pixels(head []byte) (width, height int) {
	if c, _, err := image.DecodeConfig(bytes.NewReader(head)); err == nil {
		return c.Width, c.Height
	}
	le := binary.LittleEndian
	switch {
	case bytes.HasPrefix(head, []byte("BM")) && len(head) >= 26: // BITMAPINFOHEADER
		return int(le.Uint32(head[18:])), int(max(int32(le.Uint32(head[22:])), -int32(le.Uint32(head[22:]))))
	case len(head) < 30 || string(head[8:12]) != "WEBP":
		return 0, 0
	}
	switch string(head[12:16]) { // RFC 9649
	case "VP8X":
		return 1 + int(head[24]) + int(head[25])<<8 + int(head[26])<<16, 1 + int(head[27]) + int(head[28])<<8 +
			int(head[29])<<16
	case "VP8L":
		b := le.Uint32(head[21:])
		return 1 + int(b&0x3fff), 1 + int(b>>14&0x3fff)
	case "VP8 ":
		return int(le.Uint16(head[26:]) & 0x3fff), int(le.Uint16(head[28:]) & 0x3fff)
	}
	return 0, 0
}

// textOf returns a text without control characters, unless the bytes are no text.
func textOf(head []byte, whole bool) (string, bool) {
	if !whole { // the cut may be inside a character
		for i := 0; i < utf8.UTFMax && len(head) > 0 && !utf8.Valid(head[max(0, len(head)-utf8.UTFMax):]); i++ {
			head = head[:len(head)-1]
		}
	}
	if !utf8.Valid(head) || bytes.IndexByte(head, 0) >= 0 {
		return "", false
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' || unicode.Is(unicode.Bidi_Control, r) {
			return '\ufffd'
		}
		return r
	}, strings.ReplaceAll(string(head), "\r\n", "\n")), true
}

func dump(head []byte, size uint64, note string) look {
	if note == "" && size > hexSize {
		note = "the first " + strconv.Itoa(hexSize) + " of " + strconv.FormatUint(size, 10) + " bytes"
	}
	return look{Kind: "hex", Text: hex.Dump(head[:min(len(head), hexSize)]), Note: note}
}

// node is a value of a JSON text.
type node struct {
	Name  string
	Value string // of a string, a number, true, false or null
	Items []*node
	Brace string // [ or { of a value with Items
	More  bool   // not all items are shown
}

// treeOf parses a JSON text, or returns nil if it is none. Only so many values of it are kept.
func treeOf(text []byte) *node {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	left := maxNodes
	root, err := parseNode(d, "", 0, &left)
	if err != nil {
		return nil
	}
	if _, err := d.Token(); err != io.EOF {
		return nil // JSON lines are a text
	}
	return root
}

// parseNode reads the next value. Below maxDepth, and after maxNodes values, it keeps nothing. Its
// own depth is bounded by json.Decoder, at 10,000.
func parseNode(d *json.Decoder, name string, depth int, left *int) (*node, error) {
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	n := &node{Name: clean(name, 200)}
	*left--
	brace, nested := t.(json.Delim)
	if !nested {
		n.Value = valueText(t)
		return n, nil
	}
	n.Brace = brace.String()
	for d.More() {
		name := ""
		if brace == '{' {
			key, err := d.Token()
			if err != nil {
				return nil, err
			}
			name, _ = key.(string)
		}
		item, err := parseNode(d, name, depth+1, left)
		if err != nil {
			return nil, err
		}
		if *left < 0 || depth >= maxDepth {
			n.More = true
			continue
		}
		n.Items = append(n.Items, item)
	}
	_, err = d.Token()
	return n, err
}

func valueText(t json.Token) string {
	switch v := t.(type) {
	case nil:
		return "null"
	case string:
		return `"` + strings.ReplaceAll(clean(v, 2000), `"`, `\"`) + `"`
	case json.Number:
		return clean(v.String(), 200)
	case bool:
		return strconv.FormatBool(v)
	}
	return ""
}

// clean is a text of at most so many bytes without control characters.
func clean(s string, most int) string {
	more := ""
	if len(s) > most {
		s, more = s[:most], "…"
	}
	text, _ := textOf([]byte(strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", "\ufffd"), "\ufffd")), true)
	return text + more
}
