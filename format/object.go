package format

// ManifestName is the commit point of a data set: a generation exists once this object names its
// tables.
const ManifestName = "manifest.json"

// TarSuffix ends the names of plain shards, ZstdSuffix the names of compressed ones, and
// SidecarSuffix the names of the indexes of plain shards.
const TarSuffix, ZstdSuffix, SidecarSuffix = ".tar", ".tar.zst", ".tar.shidx"
