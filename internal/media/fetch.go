// SPDX-License-Identifier: Apache-2.0

package media

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// Resolver is what a Fetcher needs of DNS; *net.Resolver is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// FetcherConfig configures a Fetcher. A zero field stands for the default in its comment.
type FetcherConfig struct {
	// AllowPrivate lifts the checks of addresses and ports: any host that the machine reaches may be
	// asked, so it is for closed networks and tests.
	AllowPrivate bool
	// Allow, unless it is empty, is all that may be fetched from; ranges in it may be private, names in it lift
	// no other check. What is in Deny is not fetched from in any case.
	Allow, Deny  Hosts
	AllowPorts   []string      // ports besides 80 and 443
	MaxBytes     int64         // of a body, after decompression; DefaultLimits().MaxBytes
	Timeout      time.Duration // for the whole of one Fetch, once it has its slot; 10 s
	MaxRedirects int           // 5; negative for none
	// MaxConcurrent bounds the fetches under way; more wait for as long as their context lets them. 16.
	MaxConcurrent int
	// UserAgent is sent with each request; some hosts refuse those without a telling one.
	UserAgent string // "afterimage (+vision model server)"
	// Dial opens a connection to an address that has passed the checks, "ip:port"; net.Dialer.
	Dial     func(ctx context.Context, network, addr string) (net.Conn, error)
	Resolver Resolver // net.DefaultResolver
}

func (c FetcherConfig) withDefaults() FetcherConfig {
	if c.MaxBytes == 0 {
		c.MaxBytes = DefaultLimits().MaxBytes
	}
	if c.Timeout == 0 {
		c.Timeout = 10 * time.Second
	}
	if c.MaxRedirects == 0 {
		c.MaxRedirects = 5
	}
	if c.MaxConcurrent == 0 {
		c.MaxConcurrent = 16
	}
	if c.UserAgent == "" {
		c.UserAgent = "afterimage (+vision model server)"
	}
	if c.Dial == nil {
		c.Dial = (&net.Dialer{}).DialContext
	}
	if c.Resolver == nil {
		c.Resolver = net.DefaultResolver
	}
	return c
}

// ErrClosed is returned by Fetch after Close.
var ErrClosed = errors.New("media: the fetcher is closed")

// Fetcher gets images from http and https URLs that strangers wrote, and keeps those URLs from
// reaching the machine's own network.
//
// Each hop of a redirect is judged like the first URL: scheme, no user name, port, and address. A
// host name is resolved once per connection; all answers must be public, and the very addresses that
// were judged are dialled. Nothing is sent but GET with a User-Agent and an Accept header, and what
// that very URL gave a Revisits to ask with: no cookies, no credentials, no referrer, and the proxy settings of the
// environment are not read.
// Whatever is denied is denied before any connection, in the same words.
type Fetcher struct {
	cfg       FetcherConfig
	transport *http.Transport
	slots     chan struct{} // one token per fetch under way

	closing context.Context // ends with Close
	close   context.CancelCauseFunc
	mu      sync.RWMutex   // held for reading while something joins active
	active  sync.WaitGroup // fetches under way, and dials, which may outlive their fetch
}

// NewFetcher returns a Fetcher. It must be closed.
func NewFetcher(cfg FetcherConfig) *Fetcher {
	f := &Fetcher{cfg: cfg.withDefaults()}
	f.slots = make(chan struct{}, f.cfg.MaxConcurrent)
	f.closing, f.close = context.WithCancelCause(context.Background())
	f.transport = &http.Transport{
		DialContext:            f.dial,
		MaxIdleConns:           32,
		MaxIdleConnsPerHost:    2,
		IdleConnTimeout:        30 * time.Second,
		TLSHandshakeTimeout:    5 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
	}
	return f
}

// Close ends all fetches under way, waits for them, and closes idle connections.
func (f *Fetcher) Close() {
	f.mu.Lock()
	f.close(ErrClosed)
	f.mu.Unlock()
	f.active.Wait()
	f.transport.CloseIdleConnections()
}

// join counts the caller as active until it calls f.active.Done, unless f is closed.
func (f *Fetcher) join() error {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if f.closing.Err() != nil {
		return ErrClosed
	}
	f.active.Add(1)
	return nil
}

// Fetch returns the body behind rawURL, in memory of its own, with at most MaxBytes. It is not
// looked at: Inspect judges it by its content. When ctx ends, the cause of ctx is returned; all
// other failures are of type *Error and the caller's fault, ErrClosed excepted.
func (f *Fetcher) Fetch(ctx context.Context, rawURL string) ([]byte, error) {
	return f.FetchMax(ctx, rawURL, f.cfg.MaxBytes)
}

// FetchMax is Fetch with a lower limit on the body, for callers that share one limit between the
// images of a request.
func (f *Fetcher) FetchMax(ctx context.Context, rawURL string, maxBytes int64) ([]byte, error) {
	a, err := f.ask(ctx, rawURL, maxBytes, func(string) validator { return validator{} })
	return a.body, err
}

// reply is what a fetch came to.
type reply struct {
	url       string // that gave the body: the last of a chain of redirects
	body      []byte // nil if it is unchanged
	unchanged bool   // since that URL gave what known had for it
	next      validator
	forget    bool // nothing of it may be kept
}

// ask is FetchMax for what is known of some URLs: known has, for each on the way, what to ask it with, or the zero
// value.
func (f *Fetcher) ask(ctx context.Context, rawURL string, maxBytes int64, known func(url string) validator) (reply, error) {
	u, err := f.parse(rawURL)
	if err != nil {
		return reply{}, err
	}
	if err := f.join(); err != nil {
		return reply{}, err
	}
	defer f.active.Done()

	caller, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(f.closing, func() { stop(ErrClosed) })()
	select {
	case f.slots <- struct{}{}:
		defer func() { <-f.slots }()
	case <-caller.Done():
		return reply{}, fmt.Errorf("media: waiting to fetch an image: %w", context.Cause(caller))
	}
	timed, cancel := context.WithTimeout(caller, f.cfg.Timeout)
	defer cancel()
	a, err := f.follow(timed, u, min(maxBytes, f.cfg.MaxBytes), known)
	switch {
	case err == nil:
		return a, nil
	case caller.Err() != nil:
		return reply{}, fmt.Errorf("media: fetching an image: %w", context.Cause(caller))
	case timed.Err() != nil:
		return reply{}, fetchError(err, "the image did not arrive within %v", f.cfg.Timeout)
	}
	return reply{}, err
}
