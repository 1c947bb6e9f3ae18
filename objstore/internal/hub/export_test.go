package hub

import "github.com/shardtool/shardtool/objstore"

// Stalled is how many requests a store gave up to send them again, as it does on a machine that is
// busy for a second.
func Stalled(s objstore.Store) int { return int(s.(*store).Reader.Stats().Stalls) }
