package mixfile

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/shardtool/shardtool/internal/order/cost"
	"github.com/shardtool/shardtool/internal/order/mix"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/order"
)

// maxFile bounds a mix file: more than the segments and sources that a mix may have.
const maxFile = 16 << 20

// maxShares is the largest sum of the shares of a segment.
var maxShares = new(big.Rat).SetInt64(1 << 62)

// Parse reads a mix file. name is for errors, which are *reader.SpecError.
func Parse(name string, text []byte) (*reader.Spec, error) {
	s := &reader.Spec{Name: name}
	if len(text) > maxFile {
		return nil, fail(name, 0, "", fmt.Errorf("%d bytes, at most %d: this is another file", len(text), maxFile))
	}
	root, err := document(text)
	if err != nil {
		return nil, fail(name, 0, "", err)
	}
	p := parser{spec: s}
	p.root(root)
	if p.err != nil {
		return nil, p.err
	}
	return s, nil
}

func fail(name string, line int, member string, err error) error {
	return &reader.SpecError{File: name, Line: line, Member: member, Err: err}
}

// document is the one document of a text. A panic of the YAML library is an error.
func document(text []byte) (root *yaml.Node, err error) {
	defer func() {
		if r := recover(); r != nil {
			root, err = nil, fmt.Errorf("not YAML: %v", r)
		}
	}()
	d := yaml.NewDecoder(bytes.NewReader(text))
	var first, more yaml.Node
	switch err := d.Decode(&first); {
	case errors.Is(err, io.EOF):
		return nil, errors.New("the file is empty")
	case err != nil:
		return nil, fmt.Errorf("cut off or not YAML: %w", err)
	}
	if err := d.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one document: give one mix")
	}
	return first.Content[0], nil
}

// parser reads nodes into a Spec and keeps the first error.
type parser struct {
	spec *reader.Spec
	err  error
}

func (p *parser) fail(n *yaml.Node, member, message string, arguments ...any) {
	if p.err == nil {
		p.err = fail(p.spec.Name, n.Line, member, fmt.Errorf(message, arguments...))
	}
}

// called has names that other formats use for members of a mix, with the names here.
var called = map[string]string{
	"address": "data", "dataset": "data", "local": "data", "path": "data", "remote": "data", "url": "data",
	"p": "weight", "prob": "weight", "probability": "weight", "proportion": "weight", "ratio": "weight",
	"weights": "weight",
	"epochs":  "max_epochs", "repeat": "max_epochs", "filter": "where", "datasets": "sources", "streams": "sources",
}

// members calls read for each member of a mapping. Members that it does not know, and members given
// twice, are refused. has names the members for errors.
func (p *parser) members(n *yaml.Node, path, has string, read func(key string, at string, value *yaml.Node) bool) {
	if n.Kind != yaml.MappingNode {
		p.fail(n, path, "give a mapping of %s", has)
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		at := key.Value
		if path != "" {
			at = path + "." + key.Value
		}
		switch {
		case key.Kind != yaml.ScalarNode:
			p.fail(key, path, "the name of a member is not plain text")
		case seen[key.Value]:
			p.fail(key, at, "given twice")
		case value.Kind == yaml.AliasNode || value.Anchor != "":
			p.fail(value, at, "anchors and aliases are not read: write the value")
		case !read(key.Value, at, value):
			known := "one of " + has
			if name := called[key.Value]; name != "" && strings.Contains(has, name) {
				known = name + " in place of " + key.Value
			}
			p.fail(key, at, "no such member: write %s", known)
		}
		seen[key.Value] = true
	}
}

func (p *parser) root(n *yaml.Node) {
	var segments *yaml.Node
	if n.Kind != yaml.MappingNode {
		p.fail(n, "", `a mix begins with "sources:", as in sources: {web: {data: out/, weight: 3}}`)
		return
	}
	p.members(n, "", "sources, segments, count, temperature, epoch and cost",
		func(key, at string, value *yaml.Node) bool {
			switch key {
			case "sources":
				p.sources(value)
			case "segments":
				segments = value // after the sources that they name
			case "count":
				p.count(at, value)
			case "temperature":
				p.temperature(at, value)
			case "epoch":
				p.epoch(at, value)
			case "cost":
				p.spec.Cost = p.text(at, value)
				if _, err := cost.Parse(p.spec.Cost); err != nil {
					p.fail(value, at, "%w", err)
				}
			default:
				return false
			}
			return true
		})
	f := p.spec
	if len(f.Sources) == 0 {
		p.fail(n, "sources", "give at least one source")
	}
	slices.SortFunc(f.Sources, func(a, b reader.SourceSpec) int { return cmp.Compare(a.Name, b.Name) })
	if segments != nil {
		p.segments(segments)
	}
	p.shares(n)
}

// shares checks the shares at position 0 together.
func (p *parser) shares(n *yaml.Node) {
	given, weighted := make([]*big.Rat, len(p.spec.Sources)), false
	for i := range p.spec.Sources {
		s := &p.spec.Sources[i]
		if s.Share != nil && p.spec.Temperature != nil && p.err == nil {
			p.err = fail(p.spec.Name, s.Line, "sources."+s.Name+".weight",
				errors.New("there is a temperature: give one of them"))
		}
		if given[i] = s.Share; s.Share == nil {
			given[i] = new(big.Rat)
		}
		weighted = weighted || s.Share != nil
	}
	if p.spec.Temperature == nil && weighted {
		p.total(n, "sources", given)
	}
}

// total refuses shares that are all 0, or too large together.
func (p *parser) total(n *yaml.Node, at string, shares []*big.Rat) {
	total := new(big.Rat)
	for _, x := range shares {
		total.Add(total, x)
	}
	switch {
	case total.Sign() == 0:
		p.fail(n, at, "all weights are 0: give one above 0")
	case total.Cmp(maxShares) >= 0:
		p.fail(n, at, "the sum of the weights is 2^62 or more: give smaller ones")
	}
}

func (p *parser) sources(n *yaml.Node) {
	p.members(n, "sources", "names and sources, as in web: {data: out/, weight: 3}",
		func(name, at string, value *yaml.Node) bool {
			s := reader.SourceSpec{Name: name, Line: value.Line}
			if len(name) > 32 || name == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789._-") != "" {
				p.fail(value, at, "give a name of 1 to 32 of the characters a-z, 0-9, '.', '_' and '-'")
			}
			p.members(value, at, "data, where, keys, layers, weight, max_epochs and order",
				func(key, at string, value *yaml.Node) bool {
					switch key {
					case "data":
						s.Data = p.text(at, value)
					case "where":
						s.Where = p.text(at, value)
					case "keys":
						s.Keys = p.text(at, value)
					case "layers":
						s.Layers = p.texts(at, value)
					case "weight":
						s.Share = p.share(at, value)
					case "max_epochs":
						s.MaxEpochs = p.integer(at, value, 1<<32)
					case "order":
						p.order(at, value, &s.Fixed)
					default:
						return false
					}
					return true
				})
			if s.Data == "" {
				p.fail(value, at+".data", "give the path or URL of the data set")
			}
			p.spec.Sources = append(p.spec.Sources, s)
			return true
		})
	if len(p.spec.Sources) > mix.MaxSources {
		p.fail(n, "sources", "%d of them, at most %d", len(p.spec.Sources), mix.MaxSources)
	}
}

func (p *parser) order(path string, n *yaml.Node, o *reader.Lanes) {
	p.members(n, path, "lanes, run_blocks, delay, head, affinity and whole_shards",
		func(key, at string, value *yaml.Node) bool {
			number := func(to *uint32, high uint64) { *to = uint32(p.integer(at, value, high)) }
			switch key {
			case "lanes":
				number(&o.Lanes, 1<<24)
			case "run_blocks":
				number(&o.RunBlocks, 1<<32-1)
			case "delay":
				number(&o.Delay, 1<<32-1)
			case "head":
				number(&o.Head, 1<<32-1)
			case "affinity":
				o.Affinity = order.Affinity(p.text(at, value))
				if o.Affinity != order.AffinityEpoch && o.Affinity != order.AffinityRun {
					p.fail(value, at, "%.40q: give epoch or run", value.Value)
				}
			case "whole_shards":
				if value.ShortTag() != "!!bool" || value.Decode(&o.WholeShards) != nil {
					p.fail(value, at, "%.40q: give true or false", value.Value)
				}
			default:
				return false
			}
			return true
		})
}

func (p *parser) segments(n *yaml.Node) {
	if n.Kind != yaml.SequenceNode {
		p.fail(n, "segments", "give a list of segments")
		return
	}
	if len(n.Content) >= mix.MaxSegments {
		p.fail(n, "segments", "%d of them, at most %d", len(n.Content), mix.MaxSegments-1)
		return
	}
	if (len(n.Content)+1)*len(p.spec.Sources) > mix.MaxWeights {
		p.fail(n, "segments", "%d of them with %d sources: at most %d weights", len(n.Content), len(p.spec.Sources),
			mix.MaxWeights)
		return
	}
	for i, value := range n.Content {
		path := fmt.Sprintf("segments[%d]", i)
		g := reader.Segment{Line: value.Line}
		var weights *yaml.Node
		p.members(value, path, "at and weights", func(key, at string, value *yaml.Node) bool {
			switch key {
			case "at":
				g.At = p.integer(at, value, 1<<63-1)
			case "weights":
				weights = value
			default:
				return false
			}
			return true
		})
		if g.At == 0 || weights == nil {
			p.fail(value, path, "give both at, a position above 0, and weights")
			return
		}
		if k := len(p.spec.Segments); k > 0 && p.spec.Segments[k-1].At >= g.At {
			p.fail(value, path+".at", "%d is not above %d, where the segment before begins", g.At,
				p.spec.Segments[k-1].At)
		}
		if g.Shares = p.weights(path+".weights", weights); p.err != nil {
			return
		}
		p.spec.Segments = append(p.spec.Segments, g)
	}
}

func (p *parser) weights(path string, n *yaml.Node) []*big.Rat {
	shares, none := make([]*big.Rat, len(p.spec.Sources)), new(big.Rat)
	for i := range shares {
		shares[i] = none
	}
	p.members(n, path, "names of sources and weights", func(name, at string, value *yaml.Node) bool {
		i, found := slices.BinarySearchFunc(p.spec.Sources, name,
			func(s reader.SourceSpec, name string) int { return cmp.Compare(s.Name, name) })
		if !found {
			p.fail(value, at, "no such source")
		} else if share := p.share(at, value); share != nil {
			shares[i] = share
		}
		return true
	})
	p.total(n, path, shares)
	return shares
}

func (p *parser) count(at string, n *yaml.Node) {
	if name := p.text(at, n); name != "samples" {
		p.spec.Count = name
	}
}

func (p *parser) temperature(at string, n *yaml.Node) {
	share, err := mix.ParseShare(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil || share.Cmp(big.NewRat(1, 1)) > 0 ||
		share.Denom().Cmp(big.NewInt(16)) > 0 {
		p.fail(n, at, "%.40q: give p/q with 0 ≤ p ≤ q ≤ 16, such as 3/10", n.Value)
		return
	}
	p.spec.Temperature = &[2]int{int(share.Num().Int64()), int(share.Denom().Int64())}
}

func (p *parser) epoch(at string, n *yaml.Node) {
	p.spec.Length.Line = n.Line
	if rule := mix.EpochRule(n.Value); n.Kind == yaml.ScalarNode && (rule == mix.EpochFirst || rule == mix.EpochAll) {
		p.spec.Length.Rule = rule
		return
	}
	p.spec.Length.Units = p.integer(at, n, 1<<63-1)
}

func (p *parser) text(at string, n *yaml.Node) string {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" || n.Value == "" {
		p.fail(n, at, "%.40q: give text", n.Value)
	}
	return n.Value
}

// texts is a list of texts.
func (p *parser) texts(at string, n *yaml.Node) (all []string) {
	if n.Kind != yaml.SequenceNode {
		p.fail(n, at, "give a list, as in [captions]")
		return nil
	}
	for i, item := range n.Content {
		all = append(all, p.text(fmt.Sprintf("%s[%d]", at, i), item))
	}
	return all
}

// share is an exact number: YAML's text of it, which is never made a floating-point number.
func (p *parser) share(at string, n *yaml.Node) *big.Rat {
	if n.Kind != yaml.ScalarNode {
		p.fail(n, at, "give a number that is not negative, such as 3, 0.6 or 1/3")
		return nil
	}
	share, err := mix.ParseShare(n.Value)
	if err != nil {
		p.fail(n, at, "%.60q: give a number that is not negative, such as 3, 0.6 or 1/3", n.Value)
		return nil
	}
	return share
}

// integer is a whole number from 1 on, in decimal digits, which may be grouped by underscores.
func (p *parser) integer(at string, n *yaml.Node, high uint64) uint64 {
	x, err := strconv.ParseUint(strings.ReplaceAll(n.Value, "_", ""), 10, 64)
	if n.Kind != yaml.ScalarNode || err != nil || x < 1 || x > high {
		p.fail(n, at, "%.40q: give a whole number from 1 to %d", n.Value, high)
		return 0
	}
	return x
}
