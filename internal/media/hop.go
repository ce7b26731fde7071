// SPDX-License-Identifier: Apache-2.0

package media

import (
	"context"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
)

// follow gets u and what it redirects to.
func (f *Fetcher) follow(ctx context.Context, u *url.URL, maxBytes int64, known func(string) validator) (reply, error) {
	for hop := 0; ; hop++ {
		u.Fragment, u.RawFragment = "", "" // servers never see it
		with := known(u.String())
		resp, err := f.get(ctx, u, with)
		if err == nil && !with.zero() && resp.StatusCode == http.StatusNotModified && !with.confirms(resp.Header) {
			resp.Body.Close()
			with = validator{}
			resp, err = f.get(ctx, u, with)
		}
		if err != nil {
			return reply{}, transportError(err)
		}
		if !isRedirect(resp.StatusCode) {
			return final(resp, u.String(), with, maxBytes)
		}
		next, err := resp.Location()
		resp.Body.Close() // unread: the connection is given up, which costs less than a long body
		if err != nil {
			return reply{}, fetchError(err, "the server answered %d without a place to go", resp.StatusCode)
		}
		if hop >= f.cfg.MaxRedirects {
			return reply{}, fetchError(nil, "more than %d redirects", max(0, f.cfg.MaxRedirects))
		}
		if u, err = f.check(next); err != nil {
			return reply{}, err
		}
	}
}

// final reads the answer of url, which was asked with a validator. That nothing has changed is an answer only to who
// asked for that.
func final(resp *http.Response, url string, with validator, maxBytes int64) (reply, error) {
	a := reply{url: url, forget: mayNotKeep(resp.Header)}
	if resp.StatusCode == http.StatusNotModified && !with.zero() {
		resp.Body.Close()
		a.unchanged, a.next = true, with
		return a, nil
	}
	body, err := readAnswer(resp, maxBytes)
	if err != nil {
		return reply{}, err
	}
	a.body, a.next = body, validatorOf(resp.Header)
	return a, nil
}

func (f *Fetcher) get(ctx context.Context, u *url.URL, with validator) (*http.Response, error) {
	var nc net.Conn
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { nc = i.Conn }})
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", f.cfg.UserAgent)
	// Hosts that negotiate send AVIF or worse to those who accept anything.
	req.Header.Set("Accept", "image/webp, image/png, image/jpeg, image/gif, */*;q=0.1")
	with.ask(req)
	resp, err := f.transport.RoundTrip(req)
	if err == nil && overhangs(resp) {
		nc.Close()
	}
	return resp, err
}

// overhangs says whether what comes next on the connection of an answer may be a body that it must not have, as a 304.
// The next request there would take that for its answer.
func overhangs(resp *http.Response) bool {
	n := resp.Header.Get("Content-Length")
	return resp.ProtoMajor == 1 && resp.Body == http.NoBody && (n != "" && n != "0" || len(resp.TransferEncoding) > 0)
}

func isRedirect(status int) bool {
	switch status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther,
		http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return true
	}
	return false
}
