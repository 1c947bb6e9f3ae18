package main

import (
	"bytes"
	"context"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/shardtool/shardtool/test/gateway"
)

const (
	objects    = 8
	objectSize = 64 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// dataset is the objects on the server, which differ, and the checksums of their MiBs.
type dataset struct {
	keys []string
	sums [][]uint32
}

func upload(ctx context.Context, server *gateway.Server) (*dataset, error) {
	client := server.Client()
	d := &dataset{}
	block := make([]byte, objectSize)
	for i := range objects {
		_, _ = rand.NewChaCha8([32]byte{byte(i)}).Read(block)
		key := fmt.Sprintf("shard-%06d", i)
		if _, err := client.PutObject(ctx, &s3.PutObjectInput{Bucket: &server.Bucket, Key: &key,
			Body: bytes.NewReader(block)}); err != nil {
			return nil, fmt.Errorf("uploading: %w", err)
		}
		sums := make([]uint32, objectSize>>20)
		for j := range sums {
			sums[j] = crc32.Checksum(block[j<<20:(j+1)<<20], castagnoli)
		}
		d.keys, d.sums = append(d.keys, key), append(d.sums, sums)
	}
	return d, nil
}

// presign lets a client without the SDK read through endpoint.
func (d *dataset) presign(ctx context.Context, server *gateway.Server, endpoint string) ([]string, error) {
	presigner := s3.NewPresignClient(server.ClientAt(endpoint))
	var urls []string
	for _, key := range d.keys {
		signed, err := presigner.PresignGetObject(ctx, &s3.GetObjectInput{Bucket: &server.Bucket, Key: aws.String(key)})
		if err != nil {
			return nil, err
		}
		if signed.Method != http.MethodGet {
			return nil, fmt.Errorf("a presigned %s", signed.Method)
		}
		urls = append(urls, signed.URL)
	}
	return urls, nil
}

// piece is one range of an object, whole MiBs.
type piece struct {
	object int
	off    int64
	size   int
}

// check compares the bytes read with those uploaded.
func (d *dataset) check(p piece, data []byte) error {
	for i := 0; i < p.size; i += 1 << 20 {
		if crc32.Checksum(data[i:i+1<<20], castagnoli) != d.sums[p.object][(p.off+int64(i))>>20] {
			return fmt.Errorf("%s: other bytes at %d", d.keys[p.object], p.off+int64(i))
		}
	}
	return nil
}

// pieces returns mib MiB of ranges of one size, in random order.
func pieces(mib, size int) []piece {
	var all []piece
	for len(all)*size < mib<<20 {
		var round []piece
		for object := range objects {
			for off := 0; off < objectSize; off += size {
				round = append(round, piece{object, int64(off), size})
			}
		}
		rand.New(rand.NewPCG(uint64(len(all)), 1)).Shuffle(len(round),
			func(i, j int) { round[i], round[j] = round[j], round[i] })
		all = append(all, round...)
	}
	return all[:(mib<<20+size-1)/size]
}
