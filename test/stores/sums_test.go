package stores_test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore"
	s3store "github.com/shardtool/shardtool/objstore/s3"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/test/proxy"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
	"github.com/shardtool/shardtool/writer/source/lines"
	tarsource "github.com/shardtool/shardtool/writer/source/tar"
)

// sdk is a client that accesses objects like other programs.
func (s *server) sdk(t *testing.T) *awss3.Client {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return awss3.New(awss3.Options{
		BaseEndpoint: &s.endpoint, Region: s.region, UsePathStyle: true, Credentials: s.keys(),
		HTTPClient: &http.Client{Transport: transport}, RequestChecksumCalculation: aws.RequestChecksumCalculationWhenRequired,
	})
}

// uploaded puts an object by one request, or in parts of these sizes, with or without a checksum.
func (s *server) uploaded(t *testing.T, bucket, key string, data []byte, algorithm types.ChecksumAlgorithm, kind types.ChecksumType, parts ...int) error {
	t.Helper()
	client := s.sdk(t)
	if len(parts) == 0 {
		_, err := client.PutObject(t.Context(), &awss3.PutObjectInput{Bucket: &bucket, Key: &key, Body: bytes.NewReader(data), ChecksumAlgorithm: algorithm})
		return err
	}
	created, err := client.CreateMultipartUpload(t.Context(), &awss3.CreateMultipartUploadInput{
		Bucket: &bucket, Key: &key, ChecksumAlgorithm: algorithm, ChecksumType: kind})
	if err != nil {
		return err
	}
	var done []types.CompletedPart
	for i, size := range parts {
		out, err := client.UploadPart(t.Context(), &awss3.UploadPartInput{Bucket: &bucket, Key: &key, UploadId: created.UploadId,
			PartNumber: aws.Int32(int32(i + 1)), Body: bytes.NewReader(data[:size]), ChecksumAlgorithm: algorithm})
		if err != nil {
			return err
		}
		data = data[size:]
		done = append(done, types.CompletedPart{ETag: out.ETag, PartNumber: aws.Int32(int32(i + 1)), ChecksumCRC32: out.ChecksumCRC32,
			ChecksumCRC32C: out.ChecksumCRC32C, ChecksumCRC64NVME: out.ChecksumCRC64NVME, ChecksumSHA1: out.ChecksumSHA1, ChecksumSHA256: out.ChecksumSHA256})
	}
	_, err = client.CompleteMultipartUpload(t.Context(), &awss3.CompleteMultipartUploadInput{Bucket: &bucket, Key: &key,
		UploadId: created.UploadId, ChecksumType: kind, MultipartUpload: &types.CompletedMultipartUpload{Parts: done}})
	return err
}

// upload describes how another program put an object.
type upload struct {
	algorithm types.ChecksumAlgorithm
	kind      types.ChecksumType
	parts     []int
	size      int
}

const mib = 1 << 20

// uploads are the common ones, and one whose parts have irregular sizes.
var uploads = map[string]upload{
	"put":                   {size: 100_000},
	"put, several ranges":   {size: 9 * mib},
	"put, streamed":         {size: 18 * mib},
	"parts":                 {size: 12*mib + 5, parts: []int{5 * mib, 5 * mib, 2*mib + 5}},
	"one part":              {size: 3 * mib, parts: []int{3 * mib}},
	"parts, CRC64NVME":      {size: 7 * mib, parts: []int{5 * mib, 2 * mib}, algorithm: types.ChecksumAlgorithmCrc64nvme, kind: types.ChecksumTypeFullObject},
	"parts, CRC32C":         {size: 7 * mib, parts: []int{5 * mib, 2 * mib}, algorithm: types.ChecksumAlgorithmCrc32c, kind: types.ChecksumTypeFullObject},
	"parts, CRC32":          {size: 7 * mib, parts: []int{5 * mib, 2 * mib}, algorithm: types.ChecksumAlgorithmCrc32, kind: types.ChecksumTypeFullObject},
	"parts, SHA256 of each": {size: 12 * mib, parts: []int{5 * mib, 5 * mib, 2 * mib}, algorithm: types.ChecksumAlgorithmSha256, kind: types.ChecksumTypeComposite},
	"parts, SHA1 of each":   {size: 10 * mib, parts: []int{5 * mib, 5 * mib}, algorithm: types.ChecksumAlgorithmSha1, kind: types.ChecksumTypeComposite},
	"parts, CRC32C of each": {size: 10 * mib, parts: []int{5 * mib, 5 * mib}, algorithm: types.ChecksumAlgorithmCrc32c, kind: types.ChecksumTypeComposite},
	"uneven parts":          {size: 18 * mib, parts: []int{5 * mib, 6 * mib, 5 * mib, 2 * mib}},
}

// firstOf matches the first request for each object, and for each range of it.
func firstOf() func(*http.Request) bool {
	var mu sync.Mutex
	seen := map[string]bool{}
	return func(r *http.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		name := r.URL.Path + r.Header.Get("Range")
		first := isObject(r) && !seen[name]
		seen[name] = true
		return first
	}
}

func isObject(r *http.Request) bool { return isGet(r) && !r.URL.Query().Has("list-type") }

// packObjects packs all objects of a store, and returns the sum of each sample's bytes by its key.
func packObjects(t *testing.T, from objstore.Store) (map[string][32]byte, error) {
	t.Helper()
	src, err := source.NewObjects(t.Context(), []objstore.Store{from}, source.FilesOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	return packed(t, src)
}

func packed(t *testing.T, src writer.Source) (map[string][32]byte, error) {
	t.Helper()
	to := mem.New()
	if _, err := writer.Pack(t.Context(), to, src, writer.Options{BlockSize: mib, ShardSize: 8 * mib, Workers: 2}); err != nil {
		return nil, err
	}
	ds, err := reader.Open(t.Context(), to, reader.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer ds.Close()
	sums := map[string][32]byte{}
	for sample, err := range ds.Samples(t.Context(), reader.Range{}) {
		if err != nil {
			t.Fatal(err)
		}
		sums[string(sample.Key)] = sha256.Sum256(sample.Fields[0].Data)
	}
	return sums, nil
}

// compares tests all uploads that a server accepts: undamaged objects pass; a bit that is flipped
// in every read never passes if the server keeps a checksum; a bit that is flipped once is read
// again, where that is possible. It returns the uploads that were compared.
func compares(t *testing.T, s *server, wrong ...string) (compared []string) {
	for _, name := range slices.Sorted(maps.Keys(uploads)) {
		u := uploads[name]
		if slices.Contains(wrong, name) { // the server's own value
			continue
		}
		bucket := s.bucket(t)
		data := pattern(uint64(len(name)), u.size)
		if err := s.uploaded(t, bucket, "raw/x.bin", data, u.algorithm, u.kind, u.parts...); err != nil {
			t.Logf("%s: the server does not take it: %v", name, err)
			continue
		}
		want := map[string][32]byte{"x": sha256.Sum256(data)}
		if got, err := packObjects(t, s.open(t, bucket, "raw", s3store.Options{})); err != nil || !maps.Equal(got, want) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		always, _ := s.faulty(t, proxy.Options{Seed: 8, Match: isObject, Faults: proxy.Faults{Flip: 1}})
		_, err := packObjects(t, always.open(t, bucket, "raw", s3store.Options{}))
		if err == nil {
			t.Logf("%s: nothing to compare with", name)
			continue
		}
		compared = append(compared, name)
		if !errors.Is(err, format.ErrCorrupt) || !errors.Is(err, objstore.ErrChecksum) {
			t.Errorf("%s: %v", name, err)
		}
		wantText(t, s, err, "x.bin", bucket, "checksum")
		once, p := s.faulty(t, proxy.Options{Seed: 9, Match: firstOf(), Faults: proxy.Faults{Flip: 1}})
		got, err := packObjects(t, once.open(t, bucket, "raw", s3store.Options{ReadOptions: objstore.ReadOptions{NoHedge: true}}))
		if streamed := u.size > 16*mib; streamed != (err != nil) || !streamed && !maps.Equal(got, want) {
			t.Errorf("%s, flipped once: %v", name, err)
		}
		if p.Counts().Flips == 0 {
			t.Errorf("%s: nothing was flipped", name)
		}
	}
	return compared
}

func TestFlippedBitsVersity(t *testing.T) {
	s, _ := versity(t)
	expectCompared(t, compares(t, s), "put", "put, several ranges", "put, streamed", "parts", "parts, CRC64NVME")
}

func TestFlippedBitsFake(t *testing.T) {
	expectCompared(t, compares(t, inMemory(t)), "put", "put, several ranges", "put, streamed")
}

// expectCompared accepts further checksums, which a later version of the server may keep.
func expectCompared(t *testing.T, got []string, want ...string) {
	t.Helper()
	for _, name := range want {
		if !slices.Contains(got, name) {
			t.Errorf("%s: bytes with a flipped bit were packed", name)
		}
	}
}

// TestUnchecked checks that the option disables the comparison.
func TestUnchecked(t *testing.T) {
	s, _ := versity(t)
	bucket := s.bucket(t)
	if err := s.uploaded(t, bucket, "raw/x.bin", pattern(1, 1000), "", ""); err != nil {
		t.Fatal(err)
	}
	through, _ := s.faulty(t, proxy.Options{Match: isObject, Faults: proxy.Faults{Flip: 1}})
	if _, err := packObjects(t, through.open(t, bucket, "raw", s3store.Options{Unchecked: true})); err != nil {
		t.Fatal(err)
	}
}

// TestFlippedBitsOfStreams checks that every source that reads an object from start to end compares
// its checksum.
func TestFlippedBitsOfStreams(t *testing.T) {
	s, _ := versity(t)
	bucket := s.bucket(t)
	direct := s.open(t, bucket, "", s3store.Options{})
	var rows, csv, archive bytes.Buffer
	fmt.Fprintln(&csv, "id,text")
	w := tar.NewWriter(&archive)
	for i := range 40_000 {
		fmt.Fprintf(&rows, "{\"id\": %d, \"text\": %q}\n", i, strings.Repeat("x", 1+i%500))
		fmt.Fprintf(&csv, "%d,%s\n", i, strings.Repeat("x", 1+i%500))
		if i%100 == 0 {
			content := pattern(uint64(i), 30_000)
			if err := w.WriteHeader(&tar.Header{Name: fmt.Sprintf("%06d.bin", i), Size: int64(len(content)), Mode: 0o644}); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write(content); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	type sources interface {
		writer.Source
		Close() error
	}
	open := func(in source.Input) (sources, error) {
		if strings.HasSuffix(in.Name, ".tar") {
			return tarsource.New(t.Context(), []source.Input{in}, tarsource.Options{})
		}
		return lines.New(t.Context(), []source.Input{in}, lines.Options{Key: "id"})
	}
	for name, content := range map[string][]byte{"rows.jsonl": rows.Bytes(), "rows.csv": csv.Bytes(), "files.tar": archive.Bytes()} {
		if _, err := objstore.Put(t.Context(), direct, name, content, objstore.Condition{}); err != nil {
			t.Fatal(err)
		}
		for _, flips := range []bool{false, true} {
			// The last range alone: what text or tar is made of stays whole.
			last := func(r *http.Request) bool {
				return isObject(r) && strings.HasPrefix(r.Header.Get("Range"), "bytes=8388608-")
			}
			opt := proxy.Options{Match: last, Seed: 3}
			if flips {
				opt.Faults.Flip = 1
			}
			through, p := s.faulty(t, opt)
			src, err := open(source.Input{Store: through.open(t, bucket, "", s3store.Options{}), Name: name})
			if err != nil {
				t.Fatal(err)
			}
			_, err = packed(t, src)
			if err := src.Close(); err != nil {
				t.Fatal(err)
			}
			if flips != errors.Is(err, format.ErrCorrupt) || !flips && err != nil || flips != (p.Counts().Flips > 0) {
				t.Errorf("%s, flips %v: %v, %+v", name, flips, err, p.Counts())
			}
			if flips {
				wantText(t, s, err, name)
			}
		}
	}
}
