package order

// slot is a place of a lane's ring: one of the at most W slots that the current tick may draw from.
type slot struct {
	q       uint32 // its number in the lane
	samples uint32 // n; 0 marks a free place
	dealt   uint32 // u of its first sample that is still to come after the current tick
	serial  uint64 // of its Span, 0 while none of its samples has been handed out
	body    *body  // nil until a tick that is wanted draws from it; the fields below are set with it

	number uint64 // of the first sample of the piece
	block  uint32 // of that sample
	index  uint32 // of that sample in its block
	mapped bool   // find has to complete references to the others
}

// body holds the state for handing out samples of a slot. Bodies are pooled by the cursor: one
// exists for each slot that is live in the lanes its rank touches, 4 bytes a sample.
type body struct {
	order  []uint32 // u → sample within the piece
	last   uint32   // block of the piece's last sample
	blocks blockMap // of a piece of several blocks

	// Of a view: the samples of the piece, and scratch.
	list    []listed
	scratch []uint32
}

// blockMap finds the block of a sample of a piece. guide gives the part it is in or after, from the
// high bits of its place in the piece; parts are walked from there, at most one on average, as
// there are no fewer guides than parts.
type blockMap struct {
	parts []part
	guide []uint32
	shift uint8
}

// part is a block with samples in a piece.
type part struct {
	block uint32
	end   uint32 // place in the piece where the block ends; the last one may end past the piece
	// begin is the place in the piece where the block begins, modulo 2^32: before the piece when a
	// cut goes through it.
	begin uint32
}

// fill makes b the body of slot s of lane l.
func (s *slot) fill(c *Cursor, l int, b *body) {
	o := &c.order
	p := o.plan
	a := &o.arcs[l]
	at := a.first + int(s.q)
	run := o.slots[at]
	var skip uint32
	if at == a.head {
		skip = a.skip
	}
	s.body = b
	of := p.partOf(c, o.blocks, run)
	s.locate(&of, skip)
	s.number = of.number(p, s.block) + uint64(s.index)
	if o.blocks.chosen != nil {
		s.mapped = true
		b.choose(o, s.block, s.index, s.samples)
	}
	if cap(b.order) < int(s.samples) {
		b.order = make([]uint32, 0, int(s.samples)+int(s.samples)/4)
	}
	b.order = b.order[:s.samples]
	for i := range b.order {
		b.order[i] = uint32(i)
	}
	if p.params.Shuffle {
		shuffle(b.order, newWords(p.params.Seed, domainSlot, uint32(l), o.epoch, s.q))
	}
}

// locate finds the blocks of the samples of the slot: those that follow the first skip samples of
// the run.
func (s *slot) locate(of *stretch, skip uint32) {
	block := of.first
	for of.at(block) <= skip {
		skip -= of.at(block)
		block++
	}
	s.block, s.index, s.body.last = block, skip, block
	if s.mapped = s.samples > of.at(block)-skip; s.mapped {
		s.body.last = s.body.blocks.fill(of, block, skip, s.samples)
	}
}

// fill maps the n samples from index skip of a block on, and returns the block of the last.
func (m *blockMap) fill(of *stretch, block, skip, n uint32) uint32 {
	m.parts = m.parts[:0]
	for begin := -skip; ; block++ {
		samples := of.at(block)
		if samples == 0 {
			continue
		}
		end := begin + samples // at most 2^32-1: a run has no more samples
		m.parts = append(m.parts, part{block: block, end: end, begin: begin})
		if end >= n {
			break
		}
		begin = end
	}
	m.shift = 0
	for uint64(n-1)>>m.shift >= 2*uint64(len(m.parts)) {
		m.shift++
	}
	m.guide = m.guide[:0]
	part := uint32(0)
	for g := uint32(0); g <= (n-1)>>m.shift; g++ {
		for m.parts[part].end <= g<<m.shift {
			part++
		}
		m.guide = append(m.guide, part)
	}
	return block
}

// find gives the block of the sample at a place of the piece, and its index there.
func (m *blockMap) find(place uint32) (block, index uint32) {
	i := m.guide[place>>m.shift]
	for m.parts[i].end <= place {
		i++
	}
	return m.parts[i].block, place - m.parts[i].begin
}

// find completes the reference to the sample at a place of the piece.
func (s *slot) find(place uint32, r *Ref) {
	b := s.body
	if s.block != b.last {
		r.Block, r.Index = b.blocks.find(place)
	}
	if len(b.list) > 0 {
		l := &b.list[place]
		r.Number, r.Index, r.Draw = l.number, l.index, l.draw
	}
}
