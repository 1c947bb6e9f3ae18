package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"golang.org/x/sync/errgroup"

	"github.com/shardtool/shardtool/test/gateway"
)

// uploadVariable makes this program a bare uploader, so that its processor time is measured as a
// process. The value is an uploadArgs as JSON.
const uploadVariable = "SHARDTOOL_BENCH_UPLOAD"

// These are the sizes that a Writer uses: parts, how many are sent at once, and shards.
const (
	floorPart     = 8 << 20
	floorPartsOut = 8
	floorObject   = 256 << 20
)

// uploadArgs describe the floor of writing: the requests of a Writer for as many bytes, without
// samples, blocks, an index, or a hash of anything.
type uploadArgs struct {
	Endpoint, Access, Secret, Region, Bucket string
	Megabytes                                int
}

// uploader runs what uploadVariable asks for, and reports whether it did.
func uploader() (bool, error) {
	text := os.Getenv(uploadVariable)
	if text == "" {
		return false, nil
	}
	var a uploadArgs
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		return true, err
	}
	begin := time.Now()
	if err := a.run(context.Background()); err != nil {
		return true, err
	}
	return true, json.NewEncoder(os.Stdout).Encode(wrote{Seconds: time.Since(begin).Seconds()})
}

// run sends objects one after the other, their parts at once. An object is completed while the next
// one is sent.
func (a *uploadArgs) run(ctx context.Context) error {
	server := gateway.Server{AccessKey: a.Access, SecretKey: a.Secret, Region: a.Region}
	client := server.ClientAt(a.Endpoint)
	data := make([]byte, 64<<20)
	_, _ = rand.Read(data) // never fails
	var requests, completions errgroup.Group
	requests.SetLimit(floorPartsOut)
	left := int64(a.Megabytes) * 1e6
	for n := 0; left > 0; n++ {
		size := min(left, floorObject)
		left -= size
		if err := a.object(ctx, client, strconv.Itoa(n), data, size, &requests, &completions); err != nil {
			return err
		}
	}
	return errors.Join(requests.Wait(), completions.Wait())
}

func (a *uploadArgs) object(ctx context.Context, client *s3.Client, name string, data []byte, size int64, requests,
	completions *errgroup.Group) error {
	key := aws.String("written/" + name)
	begun, err := client.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{Bucket: &a.Bucket, Key: key})
	if err != nil {
		return err
	}
	unsigned := s3.WithAPIOptions(v4.SwapComputePayloadSHA256ForUnsignedPayloadMiddleware)
	parts := make([]types.CompletedPart, (size+floorPart-1)/floorPart)
	var sent sync.WaitGroup
	for i := range parts {
		at := int64(i) * floorPart
		body := data[at%int64(len(data)):][:min(floorPart, size-at)]
		sent.Add(1)
		requests.Go(func() error {
			defer sent.Done()
			number := aws.Int32(int32(i + 1))
			out, err := client.UploadPart(ctx, &s3.UploadPartInput{
				Bucket: &a.Bucket, Key: key, UploadId: begun.UploadId, PartNumber: number, Body: bytes.NewReader(body),
			}, unsigned)
			if err == nil {
				parts[i] = types.CompletedPart{PartNumber: number, ETag: out.ETag}
			}
			return err
		})
	}
	completions.Go(func() error {
		sent.Wait()
		_, err := client.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{
			Bucket: &a.Bucket, Key: key, UploadId: begun.UploadId,
			MultipartUpload: &types.CompletedMultipartUpload{Parts: parts},
		})
		return err
	})
	return nil
}

// upload runs the floor in a process.
func (f *farServer) upload(ctx context.Context, megabytes int) (took wrote, err error) {
	text, err := json.Marshal(uploadArgs{
		Endpoint: f.proxy.URL, Access: f.server.AccessKey, Secret: f.server.SecretKey, Region: f.server.Region,
		Bucket:    f.server.Bucket,
		Megabytes: megabytes,
	})
	if err != nil {
		return took, err
	}
	self, err := os.Executable()
	if err != nil {
		return took, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), uploadVariable+"="+string(text))
	return f.timed(cmd)
}

// processor returns the processor seconds of a process, or 0 where the system does not tell.
func processor(pid int) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, ok := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	if err != nil || !ok || len(fields) < 13 {
		return 0
	}
	const ticks = 100 // a second, on every Linux
	user, _ := strconv.ParseFloat(fields[11], 64)
	system, _ := strconv.ParseFloat(fields[12], 64)
	return (user + system) / ticks
}
