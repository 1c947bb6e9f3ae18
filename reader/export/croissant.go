package export

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/input/kinds"
)

// croissantContext is the context that the specification of Croissant 1.0 gives, without which
// validators warn.
const croissantContext = `{
 "@language": "en", "@vocab": "https://schema.org/", "citeAs": "cr:citeAs", "column": "cr:column", "conformsTo": "dct:conformsTo",
 "cr": "http://mlcommons.org/croissant/", "rai": "http://mlcommons.org/croissant/RAI/", "data": {"@id": "cr:data", "@type": "@json"},
 "dataType": {"@id": "cr:dataType", "@type": "@vocab"}, "dct": "http://purl.org/dc/terms/", "equivalentProperty": "cr:equivalentProperty",
 "examples": {"@id": "cr:examples", "@type": "@json"}, "extract": "cr:extract", "field": "cr:field", "fileProperty": "cr:fileProperty",
 "fileObject": "cr:fileObject", "fileSet": "cr:fileSet", "format": "cr:format", "includes": "cr:includes", "isLiveDataset": "cr:isLiveDataset",
 "jsonPath": "cr:jsonPath", "key": "cr:key", "md5": "cr:md5", "parentField": "cr:parentField", "path": "cr:path", "recordSet": "cr:recordSet",
 "references": "cr:references", "regex": "cr:regex", "repeated": "cr:repeated", "replace": "cr:replace", "sc": "https://schema.org/",
 "samplingRate": "cr:samplingRate", "separator": "cr:separator", "source": "cr:source", "subField": "cr:subField", "transform": "cr:transform"
}`

// hash computes the SHA-256 of a shard's object, which the data set does not record.
func (e *exporter) hash(ctx context.Context, a *Archive) error {
	info, err := e.d.Store().Stat(ctx, a.Name)
	if err != nil {
		return err
	}
	obj, err := e.d.Store().Open(ctx, a.Name)
	if err != nil {
		return err
	}
	defer obj.Close()
	sum, buf := sha256.New(), make([]byte, min(info.Size, 4<<20))
	for a.Bytes < info.Size {
		buf = buf[:min(int64(len(buf)), info.Size-a.Bytes)]
		if err := obj.ReadAt(ctx, buf, a.Bytes); err != nil {
			return fmt.Errorf("%s: %w", a.Name, err)
		}
		sum.Write(buf)
		a.Bytes += int64(len(buf))
		e.report(0, int64(len(buf)))
	}
	a.sha256 = hex.EncodeToString(sum.Sum(nil))
	e.report(1, 0)
	return nil
}

type node = map[string]any

// croissant writes the description. A record set has the values of a field, with their keys.
func (e *exporter) croissant(ctx context.Context) error {
	name := path.Base(strings.TrimSuffix(e.d.Store().String(), "/"))
	types, _, err := typesOf(e.d)
	if err != nil {
		return err
	}
	at := ""
	if e.d.Store().String() != e.to.String() { // else beside the description
		at = strings.TrimSuffix(e.d.Store().String(), "/") + "/"
	}
	var files, sets []any
	var within []any
	for _, a := range e.res.Shards {
		kind := "application/x-tar"
		if strings.HasSuffix(a.Name, format.ZstdSuffix) {
			kind = "application/zstd"
		}
		files = append(files, node{
			"@type": "cr:FileObject", "@id": a.Name, "name": a.Name, "contentUrl": at + unlike(at, a.sha256) + a.Name,
			"contentSize":    fmt.Sprint(a.Bytes, " B"),
			"encodingFormat": kind, "sha256": a.sha256,
		})
		within = append(within, node{"@id": a.Name})
	}
	var suffixes []string
	for _, f := range e.d.Fields() {
		suffixes = append(suffixes, "."+f.Name)
	}
	for i, f := range e.d.Fields() {
		id := url.QueryEscape(f.Name) // no space, colon or slash, and another one for each field
		set := id + "/files"
		data, mime := "sc:Text", "application/octet-stream"
		switch word, class := types.Of(f.Name), kinds.MediaOf(f.Name); {
		case word == "int":
			data, mime = "sc:Integer", "text/plain"
		case word == "float":
			data, mime = "sc:Float", "text/plain"
		case word == "txt":
			mime = "text/plain"
		case word == "json":
			mime = "application/json"
		case class != "":
			data, mime = "sc:"+class+"Object", strings.ToLower(class)+"/*"
		}
		files = append(files, node{
			"@type": "cr:FileSet", "@id": set, "name": set, "containedIn": within, "encodingFormat": mime,
			"includes": globs(suffixes[i], slices.Delete(slices.Clone(suffixes), i, i+1)),
		})
		property := func(what string) node {
			return node{"fileSet": node{"@id": set}, "extract": node{"fileProperty": what}}
		}
		key := property("fullpath")
		key["transform"] = node{"regex": `^((?:.*/)?[^./]*)\.` + regexp.QuoteMeta(f.Name) + "$"}
		sets = append(sets, node{
			"@type": "cr:RecordSet", "@id": id, "name": f.Name,
			"description": fmt.Sprintf("The field %s, of %d samples.", f.Name, f.Samples),
			"field": []any{
				node{"@type": "cr:Field", "@id": id + "/key", "name": "key", "description": "The key of the sample.",
					"dataType": "sc:Text", "source": key},
				node{"@type": "cr:Field", "@id": id + "/value", "name": "value", "description": "The payload.",
					"dataType": data, "source": property("content")},
			},
		})
	}
	return e.putJSON(ctx, "croissant.json", node{
		"@context": json.RawMessage(croissantContext), "@type": "sc:Dataset",
		"conformsTo": "http://mlcommons.org/croissant/1.0", "name": name,
		"description": fmt.Sprintf("%d samples in %d shards, packed by shardtool: %s.", e.res.Samples,
			len(e.res.Shards), e.res.Digest), "version": fmt.Sprintf("%d.0.0", e.d.Info().Generation),
		"distribution": files, "recordSet": sets,
	})
}

// unlike returns steps of a path that lead nowhere, and are others for other content: mlcroissant
// keeps what it unpacks by the hash of contentUrl alone, so that two data sets whose shards have
// one name would give the records of the first. "./" and ".//" are the bits of the SHA-256. An
// address with a scheme is unlike others itself, and servers may tell such paths apart.
func unlike(at, sha256 string) string {
	if strings.Contains(at, "://") {
		return ""
	}
	var b strings.Builder
	bits, _ := hex.DecodeString(sha256[:min(len(sha256), 16)])
	for _, octet := range bits {
		for i := range 8 {
			b.WriteString([]string{"./", ".//"}[octet>>(7-i)&1])
		}
	}
	return b.String()
}

// globs returns patterns of the paths that end in a suffix, and in none of the other suffixes:
// x.jpg is a file of jpg, and x.mask.jpg, which *.jpg matches too, is not. The patterns follow a
// path from its end to the first letter that no other suffix has there. They are of Python's
// fnmatch, whose * has slashes too, as mlcroissant reads them; it does not heed the property
// excludes.
func globs(suffix string, others []string) (out []string) {
	escaped := strings.NewReplacer("*", "[*]", "?", "[?]", "[", "[[]").Replace(suffix)
	longer := map[string]bool{}
	for _, o := range others {
		if before, ok := strings.CutSuffix(o, suffix); ok && before == "" {
			return nil
		} else if ok {
			_, n := utf8.DecodeLastRuneInString(before)
			longer[before[len(before)-n:]] = true
		}
	}
	if len(longer) == 0 {
		return []string{"*" + escaped}
	}
	first, set, last := "", "", "" // a bracket ends a set unless it is first, and a hyphen is a range unless it is last
	for _, c := range slices.Sorted(maps.Keys(longer)) {
		switch c {
		case "]":
			first = c
		case "-":
			last = c
		default:
			set += c
		}
		out = append(out, globs(c+suffix, others)...)
	}
	return append(out, "*[!"+first+set+last+"]"+escaped, escaped)
}
