package mix

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/bits"
	"strings"

	"github.com/shardtool/shardtool/internal/order/members"
	"github.com/shardtool/shardtool/internal/order/units"
	"github.com/shardtool/shardtool/internal/sys/plain"
	"github.com/shardtool/shardtool/reader/order"
)

// Limits (SPEC.md, "Several sources").
const (
	maxPosition = 1 << 63 // positions are below it
	maxWeights  = 1 << 62 // the sum of a segment's weights is below it
	maxEpochs   = 1 << 32 // epochs of a source are below it; the default of MaxEpochs
	maxLanes    = 1 << 24
	// MaxSources is the most sources of a mix, including removed ones.
	MaxSources = 1000
	// MaxSegments is the most segments of a mix, and MaxWeights the most weights: segments times
	// sources.
	MaxSegments = 4096
	MaxWeights  = 1 << 20
	maxName     = 32
)

// Source is one source of a mix: a data set and the parameters of its order.
type Source struct {
	Name   string // [a-z0-9._-]{1,32}
	Digest string // of the data set; printable ASCII, at most 71 bytes
	// Tables names the tables object of the data set's generation, like Checkpoint.Tables of package
	// order; at most 29 bytes. It is not compared.
	Tables string
	// View is the ID of the view of the data set, 16 hexadecimal digits; empty for all samples.
	View  string
	Units uint64 // N_s, the samples of an epoch, or U(0) where positions hold units

	// Where positions hold units, Unit has their parameters, with a Kind; Lengths is the hash of the
	// lengths. SetLine sets the units of all epochs. Without them, the epoch that the source
	// stands in is the only one that is known: enough for a source of weight 0, and to describe a
	// checkpoint.
	Unit    units.Params
	Lengths string
	line    *units.Line

	// The frozen parameters of the source's order. Seed, shuffle and tail are not here: Params
	// has them for all sources.
	Lanes, RunBlocks, Delay, Head uint32
	Affinity                      order.Affinity

	// MaxEpochs is m_s: the source has weight 0 once it has given its first MaxEpochs epochs.
	// 0 is 2^32, the most there can be.
	MaxEpochs uint64

	// Epoch is an epoch of the source, and First the number of units that the source has given
	// before the first unit of that epoch. Both are 0 for a source that is new.
	Epoch, First uint64
	// Base is the number of units that the source has given before Mix.From.
	Base uint64
}

// Key is the key of a source's random words: a function of the mix's seed and the source's name, so
// that adding, removing or reordering sources changes the order of no other source.
func Key(seed uint64, name string) uint64 {
	text := append([]byte("shardtool source\x00"), make([]byte, 8)...)
	binary.LittleEndian.PutUint64(text[len(text)-8:], seed)
	sum := sha256.Sum256(append(text, name...))
	return binary.LittleEndian.Uint64(sum[:])
}

// Place returns the epoch of the source that holds its unit number j, counted over all epochs, and
// the unit's place in it. j is at least Base, and Units is not 0. It fails only if epochs differ in
// their units and planning one fails.
func (s *Source) Place(j uint64) (epoch, place uint64, err error) {
	if s.inUnits() {
		return s.placeInLine(j)
	}
	if j >= s.First {
		return s.Epoch + (j-s.First)/s.Units, (j - s.First) % s.Units, nil
	}
	back := (s.First-j-1)/s.Units + 1 // First belongs to a later position than Base
	return s.Epoch - back, back*s.Units - (s.First - j), nil
}

// at returns the source with Epoch and First of the epoch that its unit j is in.
func (s *Source) at(j uint64) (Source, error) {
	moved := *s
	if s.Units == 0 {
		return moved, nil
	}
	epoch, place, err := s.Place(j)
	moved.Epoch, moved.First = epoch, j-place
	return moved, err
}

// maxEpochs returns MaxEpochs or its default.
func (s *Source) maxEpochs() uint64 {
	if s.MaxEpochs == 0 {
		return maxEpochs
	}
	return s.MaxEpochs
}

// limit returns how many units the source gives in all, in its first MaxEpochs epochs. It is at
// most maxPosition, which no count reaches. Where positions hold units, it may be the end of the
// epoch that unit j is in, even if a later epoch follows, because that one is not planned before it
// begins.
func (s *Source) limit(j uint64) (uint64, error) {
	m := s.maxEpochs()
	if m <= s.Epoch {
		return s.First, nil // or less: the source has given all it may
	}
	if s.inUnits() {
		return s.limitInLine(j)
	}
	hi, lo := bits.Mul64(m-s.Epoch, s.Units)
	lo, carry := bits.Add64(lo, s.First, 0)
	if hi+carry > 0 {
		return maxPosition, nil
	}
	return min(lo, maxPosition), nil
}

func (s *Source) validate() error {
	switch {
	case !validName(s.Name):
		return fmt.Errorf("name %.40q: give 1 to %d of the characters a-z, 0-9, '.', '_' and '-'", s.Name, maxName)
	case s.Units >= maxPosition:
		return members.Bad("N", s.Units)
	case s.MaxEpochs > maxEpochs:
		return fmt.Errorf("max_epochs %d: give at most %d", s.MaxEpochs, uint64(maxEpochs))
	case s.Epoch > maxEpochs:
		return members.Bad("epoch", s.Epoch)
	case !s.inUnits() && s.First > s.Base && (s.Units == 0 || (s.First-s.Base-1)/s.Units >= s.Epoch):
		return members.Bad("first", s.First) // Base would lie before epoch 0
	case s.Lanes < 1 || s.Lanes > maxLanes:
		return members.Bad("V", s.Lanes)
	case s.Delay < 1:
		return members.Bad("W", s.Delay)
	case s.Head < 1 || s.Head > s.Delay:
		return members.Bad("H", s.Head)
	case s.Affinity != order.AffinityEpoch && s.Affinity != order.AffinityRun:
		return members.Bad("affinity", s.Affinity)
	case !plain.InJSON(s.Digest, maxDigest):
		return members.Bad("digest", s.Digest)
	case !plain.InJSON(s.Tables, maxTables):
		return members.Bad("tables", s.Tables)
	case s.View != "" && !validView(s.View):
		return members.Bad("view", s.View)
	}
	return s.validateUnits()
}

func validView(id string) bool { return len(id) == 16 && strings.Trim(id, "0123456789abcdef") == "" }

func validName(name string) bool {
	for i := range len(name) {
		switch c := name[i]; {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '.', c == '_', c == '-':
		default:
			return false
		}
	}
	return len(name) >= 1 && len(name) <= maxName
}
