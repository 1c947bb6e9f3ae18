package s3

import (
	"context"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/shardtool/shardtool/objstore/internal/ranged"
)

// TestRenewedMeanwhile refuses a request that was signed before other credentials came: it is sent
// again with those, although the source has no newer ones.
func TestRenewedMeanwhile(t *testing.T) {
	provider := aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		return aws.Credentials{AccessKeyID: "AKID", SecretAccessKey: "secret", SessionToken: "second"}, nil
	})
	s := newSecrets(new(ranged.Secrets), provider, func(context.Context) (aws.CredentialsProvider, error) { return provider, nil })
	for token, want := range map[string]bool{"first": true, "second": false} {
		if other, err := s.renew(t.Context(), 0, token, time.Second); other != want || err != nil {
			t.Errorf("%s was refused: %v, %v", token, other, err)
		}
		s.lastTurn = time.Time{}
	}
}
