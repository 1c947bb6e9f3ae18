package reader

import (
	"github.com/shardtool/shardtool/internal/curate/viewfile"
	"github.com/shardtool/shardtool/internal/curate/viewstore"
	"github.com/shardtool/shardtool/internal/figures/stats"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/internal/format/samplekey"
	"github.com/shardtool/shardtool/internal/format/stacked"
	"github.com/shardtool/shardtool/internal/order/ledger"
	"github.com/shardtool/shardtool/internal/order/mix"
	"github.com/shardtool/shardtool/internal/order/uniformity"
	"github.com/shardtool/shardtool/internal/order/units"
)

// Units says how samples form units: packed sequences, or micro-batches of samples of similar
// length.
type Units = units.Params

// UnitKind is what a unit is.
type UnitKind = units.Kind

// The kinds of units.
const (
	Pack   = units.Pack   // a sequence of at most Size tokens
	Bucket = units.Bucket // samples of similar length; count times longest is at most Size
)

// LongPolicy is what happens to a sample that is longer than a unit.
type LongPolicy = units.Long

// The policies.
const (
	LongError    = units.LongError    // the data set is refused
	LongSplit    = units.LongSplit    // it is cut into pieces of Size, the last one shorter
	LongTruncate = units.LongTruncate // it keeps its first Size tokens
	LongDrop     = units.LongDrop     // it is left out
)

// UnitLengths is what an epoch in units has of its samples, and what it leaves out.
type UnitLengths = units.Summary

// EpochRule is a way to set the length of an epoch of a mix.
type EpochRule = mix.EpochRule

// The rules.
const (
	EpochFirst = mix.EpochFirst // until some source has given all it has once
	EpochAll   = mix.EpochAll   // until every source has
)

// The types below belong to a run of a mix, or of one data set.
type (
	// MixCheckpoint is a place in a mix, and all that must agree for it to mean the same place.
	MixCheckpoint = mix.Checkpoint
	// MixState is the sources of a mix and its segments, as a checkpoint has them.
	MixState = mix.Mix
	// MixSource is a source of a MixState.
	MixSource = mix.Source
	// MixSegment is a segment of a MixState: the weights from a position on.
	MixSegment = mix.Segment
	// MixShare is what a source gives in a step, and before it.
	MixShare = mix.Share
	// MixDifference is one thing in which the mix asked for differs from a checkpoint's.
	MixDifference = mix.Difference
	// Steps numbers the batches of a run from a position on.
	Steps = mix.Steps
	// Positions is the positions From ≤ g < To of a run.
	Positions = mix.Range
	// Mixing is how well an order mixes.
	Mixing = uniformity.Verdict
	// MixingWords are the names of options in the warning of a Mixing.
	MixingWords = uniformity.Spelling
	// StreamStats is the figures of a stream: what it delivered and read, and what its consumer waited
	// for. It is a copy of a moment; subtract two for the time between.
	StreamStats = stats.Stream
	// SourceStats counts what a stream has delivered of a source of a mix.
	SourceStats = stats.Source
	// Stalls is the time that a consumer waited, by what held back its batch.
	Stalls = stats.Stalls
	// Pieces counts the pieces of a stream on their way, by what happens to them.
	Pieces = stats.Pieces
)

// What a job leaves out because it is damaged.
type (
	// SkippedBlock is a block that a stream left out.
	SkippedBlock = ledger.Block
	// SkippedMark is the number of samples left out by a batch, and a hash of their blocks.
	SkippedMark = ledger.Mark
	// Saved is the state that one rank saves after a step, for Merge.
	Saved = ledger.Saved[Checkpoint]
)

// What the store has of a data set besides samples.
type (
	// View is a choice of samples, or weights of them.
	View = viewfile.View
	// Selection is the samples of a data set that its orders and streams have.
	Selection = viewstore.Selection
	// KeyHash is the hash of a sample's key, and the sample's number.
	KeyHash = samplekey.Entry
	// ShardInfo is the row of a shard in the tables of its generation.
	ShardInfo = metadata.ShardInfo
	// ShardIndex is the index of a shard.
	ShardIndex = metadata.ShardIndex
	// IndexTag tells the index of a shard from others.
	IndexTag = metadata.IndexTag
	// IndexHash is the identity of an index, SidecarTag the part of it in the name of a sidecar.
	IndexHash  = metadata.IndexHash
	SidecarTag = metadata.SidecarTag
	// KeyRanges is the keys of a shard where they are numbered.
	KeyRanges = samplekey.Ranges
	// KeyRange is one range of them.
	KeyRange = samplekey.Range
	// RowLayout describes the rows of a stacked shard.
	RowLayout = stacked.Layout
	// RowLayoutField is a field of such rows.
	RowLayoutField = stacked.Field
	// Schema has the fields of a shard, and which of them occur together.
	Schema = metadata.Schema
	// KeyColumn is the keys of a shard, SizeColumn the sizes of a field.
	KeyColumn  = metadata.KeyColumn
	SizeColumn = metadata.SizeColumn
	// FieldCursor finds the payloads of a field.
	FieldCursor = metadata.FieldCursor
	// AttrColumn is an attribute of all samples of a shard.
	AttrColumn = metadata.AttrColumn
	// AttrTotal sums up an integer attribute of a data set.
	AttrTotal = metadata.AttrTotal
)
