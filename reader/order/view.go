package order

// View is which samples of a table an epoch has, and how often: see package view. A view is
// immutable and safe for concurrent use.
type View interface {
	// Samples is the number of samples of an epoch; one that is drawn twice counts twice.
	Samples() uint64
	// Fixed reports whether all epochs have the same samples.
	Fixed() bool
	// Slack bounds by how many the samples of a block differ between two epochs.
	Slack() uint32
	// Chosen returns the samples of an epoch. key is the key of the order's random words.
	Chosen(key uint64, epoch uint32) Chosen
}

// Chosen is the samples of one epoch of a view. It is immutable and safe for concurrent use.
type Chosen interface {
	// Counts is the number of samples of each block of the table, with their sum at most Samples
	// of the view. Do not write to it.
	Counts() []uint32
	// Append appends the samples of a block whose first sample has the number first, as indexes in
	// the block in storage order. A sample that is drawn several times is there as often.
	Append(dst []uint32, block uint32, first uint64) []uint32
}

// blocks are the samples of each block in an epoch, and the runs of them.
type blocks struct {
	samples []uint32
	runs    runs
	chosen  Chosen // nil: all samples, each once
}

// blocksOf are the blocks of an epoch. Only views that draw other samples in every epoch have to
// compute them.
func (p *Plan) blocksOf(epoch uint32) *blocks {
	if !p.draws || epoch == 0 {
		return &p.blocks
	}
	b, err := cutBlocks(&p.table, &p.params, epoch)
	if err != nil { // New has checked the sizes of runs with room for what epochs differ by
		panic(err)
	}
	return &b
}

// cutBlocks makes the blocks of an epoch.
func cutBlocks(t *Table, p *Params, epoch uint32) (b blocks, err error) {
	b.samples, _ = t.counts()
	slack := uint64(0) // by which the samples of a block may grow in another epoch
	if t.View != nil {
		if epoch == 0 {
			slack = uint64(t.View.Slack())
		}
		b.chosen = t.View.Chosen(p.Seed, epoch)
		b.samples = b.chosen.Counts()
	}
	b.runs, err = cutRuns(t, b.samples, slack, p.RunBlocks)
	return b, err
}

// choose makes the list of the samples of a piece of n samples that begins at the k-th chosen
// sample of a block.
func (b *body) choose(o *epochOrder, block, k, n uint32) {
	b.list = b.list[:0]
	for ; uint32(len(b.list)) < n; block++ {
		first := o.plan.numbers.first(block)
		b.scratch = o.blocks.chosen.Append(b.scratch[:0], block, first)
		draw := uint32(0)
		for i, index := range b.scratch {
			if draw++; i == 0 || index != b.scratch[i-1] {
				draw = 0
			}
			if k > 0 {
				k--
				continue
			}
			if uint32(len(b.list)) == n {
				break
			}
			b.list = append(b.list, listed{number: first + uint64(index), index: index, draw: draw})
		}
	}
}

// listed is one sample of a piece of a view.
type listed struct {
	number uint64
	index  uint32 // in its block
	draw   uint32
}

// ShuffleWords permutes a, which is shorter than 2^32, with WORDS(key, dom, lane, epoch, obj)
// (ORDER.md, "Random words"). It is for the packages of the layers around the order.
func ShuffleWords(a []uint32, key uint64, dom, lane, epoch, obj uint32) {
	shuffle(a, newWords(key, dom, lane, epoch, obj))
}

// FirstWords returns the first two words of WORDS(key, dom, lane, epoch, obj), the first one low.
func FirstWords(key uint64, dom, lane, epoch, obj uint32) uint64 {
	w := newWords(key, dom, lane, epoch, obj)
	four := w.four(0)
	return uint64(four[0]) | uint64(four[1])<<32
}
