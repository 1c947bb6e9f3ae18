package format

// ManifestName is the commit point of a data set: a generation exists once this object names its
// tables.
const ManifestName = "manifest.json"

// TarSuffix ends the name of a plain shard, ZstdSuffix that of a compressed one, SidecarSuffix
// that of a plain shard's index.
const TarSuffix, ZstdSuffix, SidecarSuffix = ".tar", ".tar.zst", ".tar.shidx"
