package s3

import (
	"context"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/shardtool/shardtool/objstore/internal/ranged"
)

// secrets is a credentials provider that remembers what it gave, so that no text from outside can repeat it.
type secrets struct {
	provider aws.CredentialsProvider

	mu   sync.Mutex
	last []string
}

// Retrieve is aws.CredentialsProvider's.
func (s *secrets) Retrieve(ctx context.Context) (aws.Credentials, error) {
	value, err := s.provider.Retrieve(ctx)
	if err == nil {
		s.remember(value.SecretAccessKey, value.SessionToken, value.AccessKeyID)
	}
	return value, err
}

// remember keeps the values of the last few rotations: an error may be about a request that was signed before.
func (s *secrets) remember(values ...string) {
	const most = 12
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, value := range values {
		known := value == ""
		for _, old := range s.last {
			known = known || old == value
		}
		if !known {
			s.last = append(s.last, value)
		}
	}
	s.last = s.last[max(0, len(s.last)-most):]
}

func (s *secrets) replace(text string) string {
	if s == nil {
		return text
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, value := range s.last {
		text = strings.ReplaceAll(text, value, "[secret]")
	}
	return text
}

// redact makes a text from outside fit to be shown: without the credentials, user names, passwords and query strings,
// and no longer than needed.
func (s *Store) redact(text string) string { return ranged.Scrub(s.secrets.replace(text)) }
