// Package mix orders several sources as one stream: the arithmetic "interleave/1" of SPEC.md. It
// decides which source gives the unit at a position, what part of a source's own order a batch
// takes, and how ranks share a batch. Package order decides the order of each source; nothing below
// it changes.
//
// It is pure: no files, no network, no clock, no goroutines, no floating point. A stream is a
// function of the mix and the position alone, so any number of ranks, any batch size and any resume
// agree on it, and seeking is arithmetic.
//
//	ParseShare, Temperature, PerToken ──Quantize──▶ weights, integers
//	Divide ──▶ shuffle memory of each source, for order.Choose
//	Mix (sources, segments) ──EpochLength──▶ Mix ──New──▶ Plan     immutable
//	Plan ──Seek(position, orders)──▶ Cursor ──NextBatch──▶ []Ref, Batch
//	Plan, SetLine     ──Seek(position, nil)──▶ Cursor     where positions hold units
//	Plan ──Checkpoint──▶ Checkpoint ──AppendCheckpoint──▶ JSON ──DecodeCheckpoint──▶ Checkpoint
//	Checkpoint ──Differences──▶ what another mix changes ──Change──▶ Mix from that position on
//
// How a position finds its source: the sources of a segment form a Huffman tree by weight. Every
// node splits its units between its two children as evenly as their weights allow. So the counts of
// all sources before any position cost one division for each source, each position adds one to
// exactly one source, and no source is ever two units away from its share.
//
//	weights 6, 3, 1           position  0 1 2 3 4 5 6 7 8 9
//	     10                   source    0 1 0 2 0 0 1 0 1 0
//	    /  \
//	   4    6 source 0
//	  / \
//	 1   3 source 1
//	 source 2
//
// Where positions hold packed sequences or micro-batches, a source has a Line: the units of all its
// epochs, from package units. The mix asks it for two things: how many units an epoch has, when a
// count passes into it, and a cursor at a place. Epochs differ in their units, so an epoch is
// planned when its source gets there, and never before: the counts of a mix need no plan, only the
// places in its sources and the limits do.
//
// A Mix describes a stream from position From on: what each source has given before (Base), and
// which weights hold from there. The Mix at the first start has From 0; the Mix of a checkpoint
// begins where the current segment does. Both are read in the same way, so a resume is not a
// special case.
package mix
