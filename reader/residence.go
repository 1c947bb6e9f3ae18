package reader

// What of the data set is in memory, who keeps it there, and what goes first. All of it is guarded by Stream.mu.

// admit gives a piece its memory, if it can have it now. It is the one after brought others of the batch. Memory is taken from
// what will be needed later only when the consumer waits for this very batch: nobody else can give any back then.
func (s *Stream) admit(pc *piece, d *draft, brought int) bool {
	last := s.waiting && s.coming == 1
	switch {
	case !d.copied:
		if pc.buf = s.memory.take(pc.plan.size); pc.buf == nil && last {
			if pc.buf = s.makeRoom(pc.plan.size); pc.buf == nil { // batches in hand leave no room for one large piece
				pc.buf = s.memory.force(pc.plan.size)
			}
		}
	case last:
		pc.buf = s.admitCopied(pc.plan.size, d, brought)
	}
	if pc.buf == nil {
		return false
	}
	pc.sampleTable = take(&s.idleTables)
	pc.here, pc.at = true, len(s.resident)
	s.resident = append(s.resident, pc)
	return true
}

// admitCopied is the memory of a piece whose samples are copied. What of the batch is still to be copied has its room first: only
// when all pieces before are gone does one come that has none.
func (s *Stream) admitCopied(size int, d *draft, brought int) []byte {
	rest := max(d.bytes-d.copies, 0)
	for s.memory.lent+rest+int64(bufferSize(size)) > s.memory.limit && s.evict() {
		continue
	}
	if d.gathered == brought {
		return s.memory.force(size)
	}
	if s.memory.lent+rest+int64(bufferSize(size)) > s.memory.limit {
		return nil
	}
	return s.memory.take(size)
}

// makeRoom evicts until there is room for n bytes. It returns nil when all that is left is in use.
func (s *Stream) makeRoom(n int) []byte {
	for s.evict() {
		if buf := s.memory.take(n); buf != nil {
			return buf
		}
	}
	return nil
}

// evict takes the memory of a piece that no batch in hand uses. Which one matters little: in a window every run is drawn from
// at nearly every tick.
func (s *Stream) evict() bool {
	for i := len(s.resident) - 1; i >= 0; i-- {
		if pc := s.resident[i]; pc.pins == 0 {
			s.stats.evicted.Add(uint64(pc.count))
			pc.evicted.Store(true)
			s.drop(pc)
			return true
		}
	}
	return false
}

// drop gives a piece's memory back.
func (s *Stream) drop(p *piece) {
	last := s.resident[len(s.resident)-1]
	s.resident[p.at], last.at = last, p.at
	s.resident = s.resident[:len(s.resident)-1]
	s.memory.put(p.buf)
	t := p.sampleTable
	clear(t.blocks) // a buffer that was put back may go
	clear(t.names)
	t.blocks, t.starts, t.members, t.names = t.blocks[:0], t.starts[:0], t.members[:0], t.names[:0]
	if len(s.idleTables) <= len(s.resident) {
		s.idleTables = append(s.idleTables, t)
	}
	p.buf, p.sampleTable, p.here = nil, nil, false
	p.landed.Store(false)
	s.stalls.move(p, pieceUnasked)
}

// letGo forgets a piece that nothing will draw from any more.
func (s *Stream) letGo(p *piece) {
	if p.pins > 0 || p.open > 0 {
		return
	}
	if p.here {
		s.drop(p)
	}
	delete(s.pieces, p.id)
	s.idlePieces = append(s.idlePieces, p)
}

// gathered ends a copied batch's use of its next piece.
func (s *Stream) gathered(d *draft, p *piece) {
	s.mu.Lock()
	d.gathered++
	p.pins--
	s.letGo(p)
	s.mu.Unlock()
	s.nudge()
}

// release takes a delivered batch back.
func (s *Stream) release(b *Batch) {
	s.mu.Lock()
	defer s.nudge()
	defer s.mu.Unlock()
	d := b.draft
	if d == nil || s.pieces == nil { // released before, or the stream is closed
		return
	}
	if b.draft = nil; !d.copied {
		for _, p := range d.uses {
			p.pins--
			s.letGo(p)
		}
	}
	for _, sl := range d.closing {
		for _, p := range sl.pieces {
			p.open--
			s.letGo(p)
		}
		s.idleSlots = append(s.idleSlots, sl)
	}
	for _, c := range b.views.copies {
		s.memory.put(c)
	}
	// Nor may what lies idle keep buffers alive that the memory has given up.
	clear(b.views.copies)
	clear(b.views.samples)
	clear(b.views.fields)
	s.held--
	s.idleDrafts, s.idleViews = append(s.idleDrafts, d), append(s.idleViews, b.views)
	b.Samples, b.views = nil, nil
}
