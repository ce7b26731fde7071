// SPDX-License-Identifier: Apache-2.0

package media

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"
)

// maxURLBytes bounds a URL to fetch; servers refuse longer ones anyway.
const maxURLBytes = 8 << 10

// dialTimeout bounds the attempt at one of several addresses, so that a dead one leaves time for the
// next.
const dialTimeout = 3 * time.Second

// errDenied says the same whatever the reason is and whatever listens there.
func errDenied(cause string, args ...any) error {
	return &Error{Kind: ErrURL, Msg: "Failed to fetch image: the URL leads to an address that is not allowed.", Err: fmt.Errorf(cause, args...)}
}

// parse reads a URL that a client wrote.
func (f *Fetcher) parse(rawURL string) (*url.URL, error) {
	if len(rawURL) > maxURLBytes {
		return nil, badURL(fmt.Sprintf("The URL of %d bytes exceeds the limit of %d bytes.", len(rawURL), maxURLBytes))
	}
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, &Error{Kind: ErrURL, Msg: "The URL is malformed.", Err: err}
	}
	return f.check(u)
}

// check judges all of a URL that can be judged without asking anybody.
func (f *Fetcher) check(u *url.URL) (*url.URL, error) {
	switch strings.ToLower(u.Scheme) {
	case "http", "https":
	case "file":
		return nil, badURL("Cannot load local files; give an http, https or data URL.")
	default:
		return nil, badURL("The URL must be either a HTTP, data or file URL.")
	}
	host, port := u.Hostname(), u.Port()
	switch {
	case host == "":
		return nil, badURL("The URL has no host.")
	case u.User != nil:
		return nil, badURL("The URL must not hold a user name or password.")
	case port != "" && port != "80" && port != "443" && !f.cfg.AllowPrivate && !slices.Contains(f.cfg.AllowPorts, port):
		return nil, badURL(fmt.Sprintf("Failed to fetch image: port %.20s is not allowed.", port))
	}
	if _, err := f.literal(host); err != nil {
		return nil, err
	}
	return u, nil
}

// literal judges a host that is an address, in any spelling. It returns the zero Addr for a name.
func (f *Fetcher) literal(host string) (netip.Addr, error) {
	addr, err := netip.ParseAddr(host)
	switch {
	case err == nil:
		return addr, f.permit(addr, f.cfg.Allow.empty())
	case isNumberSpelling(host):
		return netip.Addr{}, errDenied("%q is a number, not a name", host)
	}
	return netip.Addr{}, nil
}

// permit judges an address. allowed says that its name, or the lack of a list, allows it as far as it is public.
func (f *Fetcher) permit(a netip.Addr, allowed bool) error {
	switch {
	case f.cfg.Deny.holds(a):
		return errDenied("%v is on the list of what is denied", a)
	case f.cfg.Allow.holds(a):
		return nil
	case !f.cfg.AllowPrivate && !isPublic(a):
		return errDenied("%v is not public", a)
	case !allowed:
		return errDenied("%v is not on the list of what is allowed", a)
	}
	return nil
}

// dial is the guard that counts: whatever URL led here, only addresses judged in this call are
// dialled. addr is "host:port" after IDNA. The transport lets a dial go on when its request is over,
// so it has a deadline of its own and ends with the fetcher.
func (f *Fetcher) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if err := f.join(); err != nil {
		return nil, err
	}
	defer f.active.Done()
	ctx, cancel := context.WithTimeout(ctx, f.cfg.Timeout)
	defer cancel()
	defer context.AfterFunc(f.closing, cancel)()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	addrs, err := f.resolve(ctx, host)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, a := range addrs {
		conn, err := f.dialOne(ctx, network, net.JoinHostPort(a.String(), port))
		if err == nil {
			return conn, nil
		}
		errs = append(errs, err)
		if ctx.Err() != nil {
			break
		}
	}
	return nil, errors.Join(errs...)
}

func (f *Fetcher) dialOne(ctx context.Context, network, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	return f.cfg.Dial(ctx, network, addr)
}

// resolve returns the addresses of host. One address that is not public denies them all: a name that
// mixes both is an attack or a mistake.
func (f *Fetcher) resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	addr, err := f.literal(host)
	if err != nil {
		return nil, err
	}
	if addr.IsValid() {
		return []netip.Addr{addr}, nil
	}
	if f.cfg.Deny.named(host) {
		return nil, errDenied("%q is on the list of what is denied", host)
	}
	allowed := f.cfg.Allow.empty() || f.cfg.Allow.named(host)
	if !allowed && len(f.cfg.Allow.ranges) == 0 {
		return nil, errDenied("%q is not on the list of what is allowed", host)
	}
	addrs, err := f.cfg.Resolver.LookupNetIP(ctx, "ip", host)
	if err == nil && len(addrs) == 0 {
		err = &net.DNSError{Err: "no addresses", Name: host, IsNotFound: true}
	}
	if err != nil {
		return nil, fetchError(err, "the host name does not resolve")
	}
	for i, a := range addrs {
		if err := f.permit(a, allowed); err != nil {
			return nil, err
		}
		addrs[i] = a.Unmap()
	}
	return addrs, nil
}
