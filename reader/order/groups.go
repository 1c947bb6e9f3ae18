package order

// stretch is the samples of the blocks of a run.
type stretch struct {
	samples []uint32 // by block less base
	base    uint32
	first   uint32 // the first block of the run
	before  uint64 // with Groups, the number of the first sample of that
	grouped bool
}

func (s *stretch) at(block uint32) uint32 { return s.samples[block-s.base] }

// number is the number of the first sample of a block of the run.
func (s *stretch) number(p *Plan, block uint32) uint64 {
	if !s.grouped {
		return p.numbers.first(block)
	}
	number := s.before
	for b := s.first; b < block; b++ {
		number += uint64(s.at(b))
	}
	return number
}

// groupShards notes the first group of each shard.
func (p *Plan) groupShards() {
	if p.table.Groups == nil {
		return
	}
	first := uint32(0) // there are no more groups than blocks
	p.groups = make([]uint32, len(p.table.ShardFirst))
	for i := range p.groups {
		p.groups[i] = first
		first += uint32(p.table.groupsOf(i))
	}
}

// place is the shard of a run and its first block. Of a table with Groups it is also the group that
// begins there.
func (p *Plan) place(r *runs, run uint32) (shard int, first, group uint32) {
	if p.table.Groups == nil {
		if first = run; r.first != nil {
			first = r.first[run]
		}
		return 0, first, 0
	}
	grain := p.table.Groups.Grain
	if r.first == nil {
		shard = lastAtMost(p.groups, run)
		return shard, uint32(p.table.ShardFirst[shard]) + (run-p.groups[shard])*grain, run
	}
	first = r.first[run]
	shard = p.ShardOf(first)
	return shard, first, p.groups[shard] + (first-uint32(p.table.ShardFirst[shard]))/grain
}

// partOf returns the blocks of a run. With Groups it loads them, and when that fails the cursor has
// failed.
func (p *Plan) partOf(c *Cursor, b *blocks, run uint32) stretch {
	shard, first, group := p.place(&b.runs, run)
	if p.table.Groups == nil {
		return stretch{samples: b.samples, first: first}
	}
	s := stretch{base: uint32(p.table.ShardFirst[shard]), first: first, before: p.numbers.first(group), grouped: true}
	if c.failed == nil {
		s.samples, c.failed = p.table.Groups.Load(c.context(), shard)
	}
	if c.failed != nil { // nobody gets what is made of this
		s.samples, s.base = b.runs.samples[run:run+1], first
	}
	return s
}

// expect tells a table with Groups that the blocks of slot q of a lane are wanted soon.
func (c *Cursor) expect(a *arc, q int) {
	if expect := c.plan.table.Groups.Expect; expect != nil && q < a.count && c.failed == nil {
		shard, _, _ := c.plan.place(&c.order.blocks.runs, c.order.slots[a.first+q])
		expect(c.context(), shard)
	}
}

// expect does so for the slots that the tick draws from first, and for the ones after them, which a
// later tick begins.
func (n *lane) expect(c *Cursor) {
	for _, d := range n.draws {
		if s := &n.ring[d.place]; s.body == nil {
			c.expect(n.arc, int(s.q))
			c.expect(n.arc, int(s.q)+1)
		}
	}
}

// expectAll does so for all slots that the places of a part of a list draw from in lanes that were
// not begun, so that they are loaded together and not one after the other.
func (c *Cursor) expectAll(n, from, to uint64) {
	if c.plan.table.Groups == nil {
		return
	}
	ahead := Cursor{plan: c.plan, order: c.order, loaded: true}
	c.eachLane(n, from, to, func(l int, low, _ uint64) {
		if c.lanes[l] != nil && c.lanes[l].started {
			return
		}
		a := &c.order.arcs[l]
		probe := lane{id: l}
		probe.enter(&c.plan.params, a)
		probe.seek(&ahead, low)
		for i := range probe.ring {
			if s := &probe.ring[i]; s.samples > 0 {
				c.expect(a, int(s.q))
			}
		}
	})
}
