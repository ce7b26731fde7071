// SPDX-License-Identifier: Apache-2.0

package media

import (
	"net/http"
	"strings"
	"time"
)

// validator is what a server gave to ask with whether the bytes behind a URL are still the same (RFC 9110, section 8.8).
// At most one field is set; the zero value asks nothing.
type validator struct {
	etag     string // a strong one, with its quotes
	modified string // the Last-Modified date as the server wrote it
}

func (v validator) zero() bool { return v == validator{} }

const (
	// maxETag bounds an entity tag; those that servers make have some 40 bytes.
	maxETag = 256
	// strongAfter is how much older than the answer a Last-Modified date must be to tell every change: dates have
	// seconds, and clocks differ (RFC 7232, section 2.2.2).
	strongAfter = time.Minute
)

// ask has req ask with v.
func (v validator) ask(req *http.Request) {
	switch {
	case v.etag != "":
		req.Header.Set("If-None-Match", v.etag)
	case v.modified != "":
		req.Header.Set("If-Modified-Since", v.modified)
	}
}

// confirms says whether an answer 304 is about what v stands for: another tag in it is that of other bytes.
func (v validator) confirms(h http.Header) bool {
	tags := h.Values("Etag")
	return len(tags) == 0 || v.etag == "" || len(tags) == 1 && tags[0] == v.etag
}

// validatorOf returns what an answer gives to ask with; the zero value if it may not be remembered, or nothing in it
// vouches for every byte. A weak tag says that the server does not, so that its date is not believed either. What an
// answer varies with does not matter, all requests having the same headers, unless it is said to vary with anything.
func validatorOf(h http.Header) validator {
	if mayNotKeep(h) {
		return validator{}
	}
	switch tags := h.Values("Etag"); {
	case len(tags) == 1 && isStrong(tags[0]):
		return validator{etag: tags[0]}
	case len(tags) > 0:
		return validator{}
	}
	at, err := http.ParseTime(h.Get("Last-Modified"))
	date, bad := http.ParseTime(h.Get("Date"))
	if err != nil || bad != nil || date.Sub(at) < strongAfter {
		return validator{}
	}
	return validator{modified: h.Get("Last-Modified")}
}

// mayNotKeep says whether nothing of an answer may be kept beyond its request.
func mayNotKeep(h http.Header) bool {
	for _, line := range h.Values("Cache-Control") {
		for d := range strings.SplitSeq(line, ",") {
			name, _, _ := strings.Cut(strings.TrimSpace(d), "=")
			if strings.EqualFold(name, "no-store") || strings.EqualFold(name, "private") {
				return true
			}
		}
	}
	for _, line := range h.Values("Vary") {
		if strings.Contains(line, "*") {
			return true
		}
	}
	return false
}

// isStrong says whether s is a strong entity tag.
func isStrong(s string) bool {
	if len(s) < 2 || len(s) > maxETag || s[0] != '"' || s[len(s)-1] != '"' {
		return false
	}
	return !strings.ContainsFunc(s[1:len(s)-1], func(r rune) bool { return r <= ' ' || r == '"' || r > '~' })
}
