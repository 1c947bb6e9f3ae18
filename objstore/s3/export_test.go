package s3

// SetSegmentParts makes the segments of uploads small enough for a test to fill.
func (s *Store) SetSegmentParts(n int) { s.segmentParts = n }
