package format

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// Hash is a SHA-256.
type Hash [sha256.Size]byte

// String returns the hash in hexadecimal.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// ParseHash parses the result of Hash.String.
func ParseHash(s string) (h Hash, err error) {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(h) {
		return h, fmt.Errorf("%w: %q is not a SHA-256 in hexadecimal", ErrCorrupt, s)
	}
	return Hash(b), nil
}

// BlockHash is the identity of a block: SHA-256 of its decoded bytes.
func BlockHash(decoded []byte) Hash { return sha256.Sum256(decoded) }

// DigestString returns a digest as users see it: "sha256:" and hexadecimal.
func DigestString(h Hash) string { return "sha256:" + h.String() }
