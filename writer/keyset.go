package writer

// keySet finds a key that occurs twice in a shard. Ascending keys, which most sources give, cost
// one comparison each; the first key that does not ascend moves them all to a table.
type keySet struct {
	keys  []string            // all keys, while they ascend
	table map[string]struct{} // all keys after that; empty before
}

// has reports whether key is in the set.
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

// add adds a key that is not in the set.
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

// reset empties the set and keeps its memory.
func (s *keySet) reset() {
	clear(s.keys)
	clear(s.table)
	s.keys = s.keys[:0]
}
