package s3_test

import (
	"bytes"
	"encoding/base64"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest/s3server"
)

// checker makes a server verify the CRC-32C of parts as S3 does, with deviations, and records how
// parts arrive.
type checker struct {
	silent  bool // does not confirm a declared checksum, and ignores those of parts
	refuses bool // refuses unknown headers
	mute    bool // answers to parts lack the checksum
	signed  bool // refuses unsigned payloads
	damage  int  // parts whose payload is damaged on the way

	mu                       sync.Mutex
	begun, unsigned, checked int
	hashed                   int // parts with a SHA-256
}

func (c *checker) hook(w http.ResponseWriter, r *http.Request) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	query := r.URL.Query()
	switch {
	case r.Method == http.MethodPost && query.Has("uploads"):
		c.begun++
		algorithm := r.Header.Get("x-amz-checksum-algorithm")
		if c.refuses && algorithm != "" {
			s3server.Refuse(w, r, http.StatusNotImplemented, "NotImplemented")
			return true
		}
		if !c.silent && algorithm != "" {
			w.Header().Set("x-amz-checksum-algorithm", algorithm)
		}
	case r.Method == http.MethodPut && query.Has("uploadId"):
		return c.part(w, r)
	}
	return false
}

func (c *checker) part(w http.ResponseWriter, r *http.Request) bool {
	body, _ := io.ReadAll(r.Body)
	if c.damage > 0 {
		c.damage--
		body = bytes.Clone(body)
		body[len(body)/2] ^= 1
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	sum := r.Header.Get("x-amz-checksum-crc32c")
	if r.Header.Get("x-amz-content-sha256") == "UNSIGNED-PAYLOAD" {
		c.unsigned++
		if c.signed {
			s3server.Refuse(w, r, http.StatusForbidden, "AccessDenied")
			return true
		}
	} else {
		c.hashed++
	}
	if sum == "" || c.silent {
		return false
	}
	h := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	h.Write(body)
	if base64.StdEncoding.EncodeToString(h.Sum(nil)) != sum {
		s3server.Refuse(w, r, http.StatusBadRequest, "BadDigest")
		return true
	}
	if !c.mute {
		c.checked++
		w.Header().Set("x-amz-checksum-crc32c", sum)
	}
	return false
}

// TestChecksumsOfParts uploads two objects of three parts over http. A server that confirms CRC-32C
// gets unsigned payloads; another one gets a SHA-256 of each part, and is asked once.
func TestChecksumsOfParts(t *testing.T) {
	data := make([]byte, 11<<20)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(data)
	for name, c := range map[string]*struct {
		checker
		sums                          string
		begun, unsigned, checked, sha int
	}{
		"confirms":        {begun: 2, unsigned: 6, checked: 6},
		"ignores":         {checker: checker{silent: true}, begun: 2, sha: 6},
		"refuses":         {checker: checker{refuses: true}, begun: 3, sha: 6},
		"confirms no sum": {checker: checker{mute: true}, begun: 2, unsigned: 1, sha: 6},
		"wants signed":    {checker: checker{signed: true}, begun: 2, unsigned: 1, checked: 3, sha: 6},
		"damaged once":    {checker: checker{damage: 1}, begun: 2, unsigned: 1, checked: 3, sha: 6},
		"turned off":      {sums: "when_required", begun: 2, sha: 6},
	} {
		t.Run(name, func(t *testing.T) {
			s := s3server.New(t)
			s.SetHook(c.hook)
			opts := quick(s.URL)
			opts.UploadPartSize, opts.UploadConcurrency, opts.RequestChecksums = 5<<20, 1, c.sums
			store := open(t, s.URL, "", opts)
			for _, object := range []string{"a", "b"} {
				if _, err := objstore.Put(t.Context(), store, object, data, objstore.Condition{}); err != nil {
					t.Fatal(err)
				}
				if got := s.Objects[object].Data; !bytes.Equal(got, data) {
					t.Fatalf("%s has other bytes", object)
				}
			}
			if c.checker.begun != c.begun || c.checker.unsigned != c.unsigned || c.checker.checked != c.checked || c.hashed != c.sha {
				t.Errorf("%d begun, %d parts unsigned, %d checked, %d with a SHA-256; want %d, %d, %d, %d",
					c.checker.begun, c.checker.unsigned, c.checker.checked, c.hashed, c.begun, c.unsigned, c.checked, c.sha)
			}
		})
	}
}
