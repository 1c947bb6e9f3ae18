package tar

import "hash/maphash"

// maxSeen bounds the keys of an archive that are remembered to find samples whose members are not
// adjacent, to about 64 MiB. In larger archives the writer reports such a sample as a duplicate
// key.
const maxSeen = 4 << 20

// seenKeys finds a key that occurs again in an archive. Ascending keys, which most archives have,
// cost a comparison and a hash each; the first key that does not ascend moves the hashes to a
// table.
type seenKeys struct {
	seed   maphash.Seed
	last   string
	hashes []uint64            // of all keys, while they ascend
	table  map[uint64]struct{} // of all keys after that; nil before
}

func newSeenKeys(seed maphash.Seed) *seenKeys { return &seenKeys{seed: seed} }

// again adds a key and reports whether it was added before.
func (s *seenKeys) again(key string) bool {
	if len(s.hashes)+len(s.table) >= maxSeen {
		return false
	}
	hash := maphash.String(s.seed, key)
	if s.table == nil {
		if len(s.hashes) == 0 || key > s.last {
			s.hashes, s.last = append(s.hashes, hash), key
			return false
		}
		s.table = make(map[uint64]struct{}, 2*len(s.hashes))
		for _, h := range s.hashes {
			s.table[h] = struct{}{}
		}
		s.hashes = nil
	}
	_, again := s.table[hash]
	s.table[hash] = struct{}{}
	return again
}
