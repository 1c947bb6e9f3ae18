package writer

// keySet finds a key that comes twice in a shard. Keys that ascend, as most sources give them, cost one comparison each; only when
// one does not is a table made of them.
type keySet struct {
	keys  []string            // all of them, as long as they ascend
	table map[string]struct{} // all of them, from then on; empty before
}

// len is the number of keys.
func (s *keySet) len() int { return len(s.keys) + len(s.table) }

// has says whether the key is there.
func (s *keySet) has(key string) bool {
	if n := len(s.keys); n > 0 {
		if last := s.keys[n-1]; key >= last {
			return key == last
		}
		s.hash()
	}
	_, ok := s.table[key]
	return ok
}

// add takes a key that has did not find.
func (s *keySet) add(key string) {
	if len(s.table) == 0 && (len(s.keys) == 0 || key > s.keys[len(s.keys)-1]) {
		s.keys = append(s.keys, key)
		return
	}
	s.hash()
	s.table[key] = struct{}{}
}

// hash moves the keys to the table.
func (s *keySet) hash() {
	if s.table == nil {
		s.table = make(map[string]struct{}, 2*len(s.keys))
	}
	for _, key := range s.keys {
		s.table[key] = struct{}{}
	}
	clear(s.keys)
	s.keys = s.keys[:0]
}

// reset forgets all keys and keeps the memory.
func (s *keySet) reset() {
	clear(s.keys)
	clear(s.table)
	s.keys = s.keys[:0]
}
