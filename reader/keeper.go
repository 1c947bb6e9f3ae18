package reader

import (
	"log/slog"

	"github.com/shardtool/shardtool/reader/internal/kept"
)

// keeper is a folder for what need not be computed again.
type keeper struct {
	folder kept.Folder
	log    *slog.Logger
	show   func(epoch, done, of uint64)
}

func (k *keeper) put(kind string, key kept.Key, payload []byte) {
	if err := k.folder.Put(kind, key, payload); err != nil && k.log != nil {
		k.log.Warn("units: the next start computes again what could not be kept", "what", kind, "error", err)
	}
}

func newKeeper(o *StreamOptions) keeper {
	return keeper{folder: kept.Folder(o.Plans), log: o.Log, show: o.PlanProgress}
}
