// SPDX-License-Identifier: Apache-2.0

package media

import (
	"net/netip"
	"strings"
	"testing"
)

func TestHosts(t *testing.T) {
	h, err := ParseHosts([]string{"Example.com.", "*.cdn.example", "10.1.2.3/16", "192.0.2.7", "[2001:db8::1]"})
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]bool{
		"example.com": true, "EXAMPLE.com": true, "example.com.": true, "www.example.com": false, "notexample.com": false,
		"a.cdn.example": true, "a.b.cdn.example": true, "cdn.example": false, "xcdn.example": false, ".cdn.example": false, "": false,
	} {
		if h.named(host) != want {
			t.Errorf("%q: %v, want %v", host, !want, want)
		}
	}
	for addr, want := range map[string]bool{
		"10.1.255.255": true, "10.2.0.0": false, "::ffff:10.1.0.1": true, "192.0.2.7": true, "192.0.2.8": false,
		"2001:db8::1": true, "2001:db8::1%eth0": true, "2001:db8::2": false,
	} {
		if h.holds(netip.MustParseAddr(addr)) != want {
			t.Errorf("%s: %v, want %v", addr, !want, want)
		}
	}
	for _, bad := range []string{"", "*", "*.", "*example.com", "a..b", "a/b", "http://a", "a:80", "10.0.0.0/33", "010.0.0.1", "1.2.3", "ä.example", "a.*.b", "::ffff:10.0.0.0/104"} {
		if _, err := ParseHosts([]string{bad}); err == nil || !strings.Contains(err.Error(), bad) {
			t.Errorf("%q is taken: %v", bad, err)
		}
	}
}

// TestS01HostLists: what is denied is denied at every hop and by every spelling; with a list of what is allowed
// nothing else is, and a range in it may be private.
func TestS01HostLists(t *testing.T) {
	hosts := map[string][]([]netip.Addr){
		"good.example": {ips(publicIP)}, "bad.example": {ips(publicIP)}, "sub.bad.example": {ips(publicIP)}, "other.example": {ips("203.0.114.9")},
		"inside.example": {ips("10.1.2.3")}, "mixed.example": {ips("10.1.2.3", "10.9.9.9")}, "far.example": {ips("10.9.9.9")},
		"xn--bcher-kva.example": {ips(publicIP)},
	}
	must := func(list ...string) Hosts {
		h, err := ParseHosts(list)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	f := func(cfg FetcherConfig, url string, want bool) {
		t.Helper()
		n := newNetwork(t, cfg, hosts, body("picture"))
		_, err := n.fetcher.Fetch(t.Context(), url)
		if want != (err == nil) {
			t.Errorf("allow %v, deny %v: %s: %v", cfg.Allow, cfg.Deny, url, err)
		}
		if err != nil {
			wantKind(t, err, ErrURL)
			if len(n.dials()) > 0 {
				t.Errorf("%s: dialled %v", url, n.dials())
			}
		}
	}
	deny := FetcherConfig{Deny: must("bad.example", "*.bad.example", "203.0.114.0/24", "xn--bcher-kva.example")}
	f(deny, "http://good.example/", true)
	f(deny, "http://"+publicIP+"/", true)
	for _, host := range []string{"bad.example", "BAD.example", "bad.example.", "sub.bad.example", "other.example", "203.0.114.9", "bücher.example", "inside.example"} {
		f(deny, "http://"+host+"/", false)
	}
	names := FetcherConfig{Allow: must("good.example", "inside.example")}
	f(names, "http://good.example:80/", true)
	for _, host := range []string{"bad.example", "other.example", publicIP, "inside.example"} { // a name lifts no other rule
		f(names, "http://"+host+"/", false)
	}
	ranges := FetcherConfig{Allow: must("10.1.0.0/16", "good.example"), Deny: must("10.1.9.0/24")}
	f(ranges, "http://inside.example/", true)
	f(ranges, "http://10.1.2.3/", true)
	for _, host := range []string{"mixed.example", "far.example", "10.1.9.1", "10.2.0.1", "127.0.0.1", "other.example"} {
		f(ranges, "http://"+host+"/", false)
	}
	all := FetcherConfig{AllowPrivate: true, Deny: must("10.1.0.0/16")}
	f(all, "http://far.example/", true)
	f(all, "http://inside.example/", false)
	f(all, "http://[::ffff:10.1.2.3]/", false)
}
