package format

// KeysLen is how many bytes the keys take in a shard's index, stored: what an index costs beside them is Tail less KeysLen.
func KeysLen(ix *ShardIndex) int {
	s := rawSection{}
	s.raw = appendStrings(nil, ix.Keys, &s.cuts)
	return s.storedLen()
}
