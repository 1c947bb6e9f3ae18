// Package recognise finds what files and folders contain: by their first and last bytes where the
// format has a signature, else by names, and by the files that make a layout.
//
//	all names ──▶ kinds by extension ──▶ bytes of up to 64 files ──▶ layouts ──▶ one kind, or files of samples
package recognise

import (
	"path"
	"slices"
	"strings"
)

// Kind is a format of files, or a layout of folders. There is one value of each.
type Kind struct {
	// ID names the kind for programs.
	ID string
	// One and Many are for messages, such as "a Parquet file" and "Parquet files".
	One, Many string
	// Help is how to pack the kind, for kinds that pack does not read: a program, or lines of Python
	// in which FILE stands for the file or folder. It is empty for kinds that pack reads.
	Help string
	// field reports that a file may be a field of a sample, beside other files with its key.
	field bool
	// suffixes are extensions in lower case.
	suffixes []string
}

// Kinds that pack reads.
var (
	Parquet = &Kind{ID: "parquet", One: "a Parquet file", Many: "Parquet files",
		suffixes: []string{".parquet", ".parq", ".pq"}}
	Lines = &Kind{ID: "lines", One: "a file of JSON Lines or CSV", Many: "files of JSON Lines and CSV", field: true,
		// a plain .json is most often a field
		suffixes: append(compressed(".jsonl", ".ndjson", ".csv", ".tsv"), compressed(".json")[1:]...)}
	Tar = &Kind{ID: "tar", One: "a tar archive", Many: "tar archives", suffixes: append(compressed(".tar"), ".tgz",
		".tbz2", ".txz")}
	Arrow = &Kind{ID: "arrow", One: "an Arrow file", Many: "Arrow files",
		suffixes: []string{".arrow", ".arrows", ".feather", ".ipc"}}
	Tokens = &Kind{ID: "tokens", One: "an array of token ids", Many: "arrays of token ids (.npy, .bin)", field: true,
		suffixes: []string{".npy", ".bin"}}
	// Arrays are .npy files of other types than ids, or of more dimensions, and .npz files. A .npy
	// file in a folder is a field, unless it is long.
	Arrays = &Kind{ID: "arrays", One: "an array", Many: "arrays (.npy, .npz)", field: true,
		suffixes: []string{".npz"}}
	TFRecord = &Kind{ID: "tfrecord", One: "a TFRecord file", Many: "TFRecord files",
		suffixes: compressed(".tfrecord", ".tfrecords")}
	MDS = &Kind{ID: "mds", One: "a shard of MosaicML Streaming (MDS)", Many: "shards of MosaicML Streaming (MDS)",
		suffixes: compressed(".mds")}
	Zip = &Kind{ID: "zip", One: "a zip archive", Many: "zip archives", field: true, suffixes: []string{".zip"}}
	// Text is for files whose lines are documents. None is recognised as such: the user says so.
	Text = &Kind{ID: "text", One: "a file of lines of text", Many: "files of lines of text",
		suffixes: compressed(".txt", ".text")}
	// Megatron is an index, whose tokens are in the .bin file beside it.
	Megatron = &Kind{ID: "megatron", One: "an index of Megatron tokens", Many: "indexes of Megatron tokens (.idx)"}
)

// compressed returns extensions, alone and followed by an extension of a compression that pack
// reads.
func compressed(endings ...string) (all []string) {
	for _, e := range endings {
		all = append(all, e, e+".gz", e+".zst", e+".zstd", e+".bz2", e+".xz", e+".lz4")
	}
	return all
}

func python(lines ...string) string { return "in Python:\n" + strings.Join(lines, "\n") }

// each returns the program that writes a file, whose lines are in a block with the Writer w. They
// read "FILE" and no other.
func each(imports string, lines ...string) string {
	if len(lines) == 1 && strings.HasPrefix(lines[0], "w.") {
		return python("import shardtool, "+imports, written+" "+lines[0])
	}
	return python("import shardtool, "+imports, written+"\n    "+strings.Join(lines, "\n    "))
}

const written = `with shardtool.Writer("out/") as w:`

// table returns the program that packs a table of pyarrow.
func table(imports, expression string) string { return each(imports, "w.write_table("+expression+")") }

// Instead says how to pack a file, or a folder that is of the kind as a whole: help for people and
// the lines of a program, which may be empty.
func (k *Kind) Instead(file string) (help, program string) {
	help, program, _ = strings.Cut(strings.ReplaceAll(k.Help, "FILE", file), "\n")
	return help, program
}

// InsteadOfAll is like Instead for the files below a folder with names that end in suffix. For
// kinds of which each file has its own rows, it is a loop; for others it is empty.
func (k *Kind) InsteadOfAll(folder, suffix string) (help, program string) {
	head, body, is := strings.Cut(k.Help, "\n"+written)
	if !is || !strings.Contains(body, `"FILE"`) {
		return "", ""
	}
	help, imports, _ := strings.Cut(head, "\n")
	lines := []string{
		strings.Replace(imports, "import ", "import glob, ", 1), written,
		`    for file in sorted(glob.glob("` + folder + "/**/*" + suffix + `", recursive=True)):`,
	}
	for line := range strings.SplitSeq(strings.TrimPrefix(body, "\n"), "\n") {
		lines = append(lines, "        "+strings.TrimPrefix(strings.ReplaceAll(strings.TrimPrefix(line, " "), `"FILE"`,
			"file"), "   "))
	}
	return help, strings.Join(lines, "\n")
}

// mosaicPage is for shards that only the library of MosaicML reads.
const mosaicPage = "docs/mosaicml.md has the program that packs it"

const page = "docs/other-formats.md has the program that packs it"

// Kinds that pack does not read.
var (
	feather1 = &Kind{ID: "feather-1", One: "a file of the first version of Feather",
		Many: "files of the first version of Feather",
		Help: table("pyarrow.feather", `pyarrow.feather.read_table("FILE")`)}
	orc = &Kind{ID: "orc", One: "an ORC file", Many: "ORC files", suffixes: []string{".orc"},
		Help: table("pyarrow.orc", `pyarrow.orc.read_table("FILE")`)}
	avro = &Kind{ID: "avro", One: "an Avro file", Many: "Avro files", suffixes: []string{".avro"},
		Help: each("fastavro", `with open("FILE", "rb") as f:`, `    for row in fastavro.reader(f): w.write(row)`)}
	hdf5 = &Kind{ID: "hdf5", One: "an HDF5 file", Many: "HDF5 files", suffixes: []string{".h5", ".hdf5", ".hdf"},
		Help: each("h5py", `with h5py.File("FILE") as f: w.write_batch({name: f[name][:] for name in f})`)}
	netcdf = &Kind{ID: "netcdf", One: "a NetCDF file", Many: "NetCDF files", suffixes: []string{".nc"},
		Help: each("netCDF4",
			`with netCDF4.Dataset("FILE") as f: w.write_batch({name: v[:].data for name, v in f.variables.items()})`)}
	sqlite = &Kind{ID: "sqlite", One: "an SQLite database", Many: "SQLite databases",
		suffixes: []string{".sqlite", ".sqlite3"},
		Help: python("import shardtool, sqlite3", `db = sqlite3.connect("FILE"); db.row_factory = sqlite3.Row`,
			`with shardtool.Writer("out/") as w:`,
			`    for row in db.execute("select * from TABLE"): w.write(dict(row))`)}
	arrayRecord = &Kind{ID: "arrayrecord", One: "an ArrayRecord file", Many: "ArrayRecord files",
		suffixes: []string{".arrayrecord", ".array_record"},
		Help: each("array_record.python.array_record_data_source as source",
			`for row in source.ArrayRecordDataSource("FILE"): w.write({"data": row})`)}
	recordIO = &Kind{ID: "recordio", One: "a RecordIO file", Many: "RecordIO files", suffixes: []string{".rec"},
		Help: "in Python, read it with mxnet.recordio and write its samples with shardtool.Writer"}
	idx = &Kind{ID: "idx", One: "an IDX file, as of MNIST", Many: "IDX files, as of MNIST",
		Help: python("import numpy, shardtool", `b = open("FILE", "rb").read(); n = 4 + 4 * b[3]`,
			`a = numpy.frombuffer(b, {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}[b[2]], offset=n)`,
			`with shardtool.Writer("out/") as w: w.write_batch({"data": a.reshape(numpy.frombuffer(b[4:n], ">i4")).astype(a.dtype.newbyteorder("="))})`)}
	cifar = &Kind{ID: "cifar", One: "a binary file of CIFAR", Many: "binary files of CIFAR",
		Help: each("numpy", `a = numpy.fromfile("FILE", "u1").reshape(-1, 3073)`,
			`w.write_batch({"cls": a[:, 0], "image": a[:, 1:].reshape(-1, 3, 32, 32)})`)}
	pickled = &Kind{ID: "pickle", One: "a pickle", Many: "pickles",
		Help: "a pickle runs code when it is read: read it in Python, if you trust it, and write its samples with shardtool.Writer"}
	safetensors = &Kind{ID: "safetensors", One: "a safetensors file", Many: "safetensors files", field: true,
		suffixes: []string{".safetensors"},
		Help:     each("safetensors.numpy", `w.write_batch(safetensors.numpy.load_file("FILE"))`)}
	beton = &Kind{ID: "ffcv", One: "an FFCV file", Many: "FFCV files", suffixes: []string{".beton"},
		Help: "pack the data that it was made of"}
	mdsCoded = &Kind{ID: "mds-coded", One: "a shard of MosaicML Streaming (MDS) in Brotli or Snappy",
		Many:     "shards of MosaicML Streaming (MDS) in Brotli or Snappy",
		suffixes: []string{".mds.br", ".mds.snappy"}, Help: mosaicPage}
	gZip = &Kind{ID: "gzip", One: "a gzip file", Many: "gzip files", field: true, suffixes: []string{".gz"},
		Help: "unpack it with `gunzip FILE`"}
	zstd = &Kind{ID: "zstd", One: "a zstd file", Many: "zstd files", field: true,
		suffixes: []string{".zst", ".zstd"}, Help: "unpack it with `unzstd FILE`"}
	xz = &Kind{ID: "xz", One: "an xz file", Many: "xz files", field: true, suffixes: []string{".xz"},
		Help: "unpack it with `unxz FILE`"}
	bzip2 = &Kind{ID: "bzip2", One: "a bzip2 file", Many: "bzip2 files", field: true, suffixes: []string{".bz2"},
		Help: "unpack it with `bunzip2 FILE`"}
	lz4 = &Kind{ID: "lz4", One: "an lz4 file", Many: "lz4 files", field: true, suffixes: []string{".lz4"},
		Help: "unpack it with `unlz4 FILE`"}
	sevenZip = &Kind{ID: "7z", One: "a 7z archive", Many: "7z archives", suffixes: []string{".7z"},
		Help: "unpack it with `7z x FILE` and pack the folder"}
	rar = &Kind{ID: "rar", One: "a RAR archive", Many: "RAR archives", suffixes: []string{".rar"},
		Help: "unpack it with `unrar x FILE` and pack the folder"}
	lfsPointer = &Kind{ID: "git-lfs", One: "a pointer of Git LFS instead of the file",
		Many: "pointers of Git LFS instead of files",
		Help: "fetch the files with `git lfs pull` in the clone"}
)

// Layouts, which pack does not read.
var (
	lmdb   = &Kind{ID: "lmdb", One: "an LMDB database", Many: "LMDB databases", Help: page}
	zarr   = &Kind{ID: "zarr", One: "a Zarr store", Many: "Zarr stores", Help: page}
	mosaic = &Kind{ID: "mosaicml", One: "a data set of MosaicML Streaming in the format JSON, CSV, TSV or XSV",
		Many: "data sets of MosaicML Streaming in the formats JSON, CSV, TSV and XSV", Help: mosaicPage}
	litdata = &Kind{ID: "litdata", One: "a LitData data set", Many: "LitData data sets", Help: page}
	delta   = &Kind{ID: "delta", One: "a Delta table", Many: "Delta tables",
		Help: "its Parquet files hold deleted rows too; " +
			table("deltalake", `deltalake.DeltaTable("FILE").to_pyarrow_table()`)}
	hudi = &Kind{ID: "hudi", One: "a Hudi table", Many: "Hudi tables",
		Help: "its Parquet files hold earlier versions of its rows too; " +
			each("hudi, os", `for rows in hudi.HudiTable(os.path.abspath("FILE")).read(): w.write_table(rows)`)}
	iceberg = &Kind{ID: "iceberg", One: "an Iceberg table", Many: "Iceberg tables",
		Help: "its Parquet files hold deleted rows too; " + each("glob, os, re, pyiceberg.table as tables",
			`files = glob.glob("FILE/metadata/*.metadata.json")`,
			`newest = max(files, key=lambda f: int(re.search(r"\d+", os.path.basename(f))[0]))`,
			`w.write_table(tables.StaticTable.from_metadata(newest).scan().to_arrow())`)}
	lance = &Kind{ID: "lance", One: "a Lance data set", Many: "Lance data sets",
		Help: table("lance", `lance.dataset("FILE").to_table()`)}
	voc = &Kind{ID: "voc", One: "a data set in the layout of Pascal VOC", Many: "data sets in the layout of Pascal VOC",
		Help: "an image and its annotation lie in two folders and would become two samples; docs/other-formats.md has the program that joins them"}
	yolo = &Kind{ID: "yolo", One: "a data set in the layout of YOLO", Many: "data sets in the layout of YOLO",
		Help: "an image and its labels lie in two folders and would become two samples; docs/other-formats.md has the program that joins them"}
	lerobot = &Kind{ID: "lerobot", One: "a data set in the layout of LeRobot",
		Many: "data sets in the layout of LeRobot",
		Help: "its frames are rows, which name their clips by episode: `shardtool pack FILE out/ --include 'data/**'` packs them and leaves the videos where they are"}
	commonVoice = &Kind{ID: "common-voice", One: "a data set in the layout of Common Voice",
		Many: "data sets in the layout of Common Voice",
		Help: "the rows of a .tsv name the clips: `shardtool pack FILE/validated.tsv out/ --quote none --file-column audio=path --file-root FILE/clips` joins them"}
	llava = &Kind{ID: "llava", One: "a list of conversations about images, as of LLaVA",
		Many: "lists of conversations about images, as of LLaVA",
		Help: "its rows name the images: `shardtool pack FILE out/ --file-column image=image --where 'image is not null'` joins them; rows without one are left out"}
	ljspeech = &Kind{ID: "ljspeech", One: "a data set in the layout of LJSpeech",
		Many: "data sets in the layout of LJSpeech",
		Help: python("import pathlib, shardtool", `d = pathlib.Path("FILE")`, `with shardtool.Writer("out/") as w:`,
			`    for line in (d / "metadata.csv").read_text().splitlines():`,
			`        name, text, spoken = line.split("|")`,
			`        w.write({"wav": (d / "wavs" / f"{name}.wav").read_bytes(), "txt": text, "normalized.txt": spoken})`)}
	kitti = &Kind{ID: "kitti", One: "a data set in the layout of KITTI", Many: "data sets in the layout of KITTI",
		Help: "the files of a sample lie in several folders and would become several samples; " +
			python("import pathlib, shardtool",
				`d = pathlib.Path("FILE")`, `with shardtool.Writer("out/") as w:`,
				`    for label in sorted(d.glob("**/label_2/*.txt")):`,
				`        files = sorted(label.parent.parent.glob(f"*/{label.stem}.*"))`,
				`        w.write({f.parent.name + f.suffix: f.read_bytes() for f in files})`)}
	cityscapes = &Kind{ID: "cityscapes", One: "a data set in the layout of Cityscapes",
		Many: "data sets in the layout of Cityscapes",
		Help: "an image and its labels lie in two folders and would become several samples; " +
			python("import pathlib, shardtool",
				`d = pathlib.Path("FILE")`, `with shardtool.Writer("out/") as w:`,
				`    for image in sorted(d.glob("leftImg8bit/*/*/*_leftImg8bit.png")):`,
				`        split, city, name = *image.parts[-3:-1], image.name.removesuffix("_leftImg8bit.png")`,
				`        labels = sorted((d / "gtFine" / split / city).glob(name + "_gtFine_*"))`,
				`        w.write({"png": image.read_bytes(), **{f.name[len(name) + 8:]: f.read_bytes() for f in labels}})`)}
	coco = &Kind{ID: "coco", One: "a data set with annotations of COCO", Many: "data sets with annotations of COCO",
		Help: "its annotations are one file for all images; docs/other-formats.md has the program that joins them"}
)

// byName are the kinds that extensions name.
var byName = []*Kind{Parquet, Lines, Tar, Tokens, Arrays, TFRecord, Arrow, MDS, orc, avro, hdf5, netcdf, sqlite,
	arrayRecord, recordIO, safetensors, beton, mdsCoded,
	Zip, gZip, zstd, xz, bzip2, lz4, sevenZip, rar}

// notContainers are extensions of payloads that end in, or have the signature of, another kind.
var notContainers = []string{".nii.gz", ".svgz", ".pt", ".pth", ".docx", ".xlsx", ".pptx", ".epub", ".pkl", ".pickle",
	".keras", ".jar", ".apk", ".ckpt", ".mat"}

// Names reports whether a name has an extension of the kind.
func (k *Kind) Names(name string) bool {
	low := strings.ToLower(path.Base(name))
	return slices.ContainsFunc(k.suffixes,
		func(s string) bool { return len(low) > len(s) && strings.HasSuffix(low, s) })
}

// OfName returns the kind that the extension of a name states, or nil.
func OfName(name string) *Kind {
	k, _ := ofName(name)
	return k
}

func ofName(name string) (k *Kind, suffix string) {
	low := strings.ToLower(path.Base(name))
	if payload(low) {
		return nil, ""
	}
	for _, k := range byName {
		for _, s := range k.suffixes {
			if len(low) > len(s) && strings.HasSuffix(low, s) && len(s) > len(suffix) {
				return k, low[len(low)-len(s):]
			}
		}
	}
	return nil, ""
}

func payload(low string) bool {
	return slices.ContainsFunc(notContainers, func(s string) bool { return strings.HasSuffix(low, s) })
}
