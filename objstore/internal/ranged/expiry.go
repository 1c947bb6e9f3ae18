package ranged

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Expiry returns when a signed URL to which an answer redirects expires, a tenth of its time or
// half a minute too early. It is zero if the URL has no signature and the answer no Cache-Control.
// The time is counted from the Date of the answer, so that this machine's clock may be wrong.
func Expiry(u *url.URL, header http.Header) time.Time {
	now := time.Now()
	date, err := http.ParseTime(header.Get("Date"))
	if err != nil {
		date = now
	}
	q := u.Query()
	var end time.Time
	if seconds, err := strconv.ParseInt(q.Get("Expires"), 10, 64); err == nil { // CloudFront
		end = time.Unix(seconds, 0)
	} else if at, err := time.Parse(time.RFC3339, q.Get("se")); err == nil { // Azure
		end = at
	} else {
		for _, vendor := range []string{"X-Amz-", "X-Goog-"} {
			at, err := time.Parse("20060102T150405Z", q.Get(vendor+"Date"))
			if seconds, bad := strconv.ParseUint(q.Get(vendor+"Expires"), 10, 31); err == nil && bad == nil {
				end = at.Add(time.Duration(seconds) * time.Second)
			}
		}
	}
	if _, text, ok := strings.Cut(header.Get("Cache-Control"), "max-age="); ok && end.IsZero() {
		text, _, _ = strings.Cut(text, ",")
		if seconds, err := strconv.ParseUint(strings.TrimSpace(text), 10, 31); err == nil {
			end = date.Add(time.Duration(seconds) * time.Second)
		}
	}
	if end.IsZero() {
		return end
	}
	valid := end.Sub(date)
	return now.Add(valid - min(valid/10, 30*time.Second))
}
