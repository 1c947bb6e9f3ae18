package s3

import (
	"context"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/shardtool/shardtool/objstore/internal/ranged"
)

// secrets is a credentials provider that remembers the credentials it returned, so that they can be
// removed from error texts.
type secrets struct {
	provider aws.CredentialsProvider

	mu   sync.Mutex
	last []string
}

// Retrieve implements aws.CredentialsProvider.
func (s *secrets) Retrieve(ctx context.Context) (aws.Credentials, error) {
	value, err := s.provider.Retrieve(ctx)
	if err == nil {
		s.remember(value.SecretAccessKey, value.SessionToken, value.AccessKeyID)
	}
	return value, err
}

// remember keeps the values of the last few rotations, because an error may concern a request that
// was signed earlier.
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

// redact removes credentials, user names, passwords and query strings from a text that came from
// outside, and limits its length.
func (s *Store) redact(text string) string { return ranged.Scrub(s.secrets.replace(text)) }
