package ranged

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"sync"
	"time"
)

// Quota is the number of requests of one kind that a server allows in a window of time, as its
// answers tell by RateLimit (https://datatracker.ietf.org/doc/draft-ietf-httpapi-ratelimit-headers,
// version 9) and by Retry-After with status 429.
type Quota struct {
	// Advice says in errors what raises the limit.
	Advice string

	mu     sync.Mutex
	left   int       // by the answers of this window
	end    time.Time // of the window
	policy string
	flying int // requests without an answer, which left may not include
}

var (
	quotaLeft   = regexp.MustCompile(`;\s*r=(\d{1,9});\s*t=(\d{1,9})`)
	quotaPolicy = regexp.MustCompile(`;\s*q=(\d+);\s*w=(\d+)`)
)

// Take counts a request. If none is left, it returns a [*Transient] that tells how long to wait.
func (q *Quota) Take() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if wait := time.Until(q.end); wait > 0 && q.left <= q.flying {
		return &Transient{Quota: true, After: wait, Answered: true,
			Err: fmt.Errorf("the server accepts no more requests for %v, "+
				"by its rate limit%s (429); %s", wait.Round(time.Second), q.policy, q.Advice)}
	}
	q.flying++
	return nil
}

// Answered reads the limit from the answer to a request that Take has counted. The answer is nil if
// there was none.
func (q *Quota) Answered(answer *http.Response) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.flying--
	if answer == nil {
		return
	}
	if found := quotaPolicy.FindStringSubmatch(answer.Header.Get("RateLimit-Policy")); found != nil {
		q.policy = fmt.Sprintf(" of %s in %s s", found[1], found[2])
	}
	left, wait := 0, time.Duration(0)
	if found := quotaLeft.FindStringSubmatch(answer.Header.Get("RateLimit")); found != nil {
		left, _ = strconv.Atoi(found[1])
		seconds, _ := strconv.Atoi(found[2])
		wait = time.Duration(seconds)*time.Second + time.Second // the seconds were rounded down
	}
	if answer.StatusCode == http.StatusTooManyRequests {
		left, wait = 0, max(wait, RetryAfter(answer.Header))
	}
	if wait == 0 {
		return // the answer says nothing
	}
	now := time.Now()
	end := now.Add(wait)
	if now.Before(q.end) && end.Sub(q.end).Abs() < 5*time.Second { // the same window
		left = min(q.left, left)
	}
	q.left, q.end = left, end
}
