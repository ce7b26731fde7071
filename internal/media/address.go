// SPDX-License-Identifier: Apache-2.0

package media

import (
	"net/netip"
	"strings"
)

// prefixes parses a list of networks; a mistake in it is a programming error.
func prefixes(list ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(list))
	for i, s := range list {
		out[i] = netip.MustParsePrefix(s)
	}
	return out
}

// What is not the public internet, from the special-purpose registries of IANA.
var (
	notPublic4 = prefixes(
		"0.0.0.0/8",        // this network
		"10.0.0.0/8",       // private
		"100.64.0.0/10",    // carrier-grade NAT; metadata services of some clouds
		"127.0.0.0/8",      // loopback
		"168.63.129.16/32", // Azure's host channel, in public space
		"169.254.0.0/16",   // link-local; metadata services
		"172.16.0.0/12",    // private
		"192.0.0.0/24",     // protocol assignments
		"192.0.2.0/24",     // documentation
		"192.88.99.0/24",   // 6to4 relays
		"192.168.0.0/16",   // private
		"198.18.0.0/15",    // benchmarking
		"198.51.100.0/24",  // documentation
		"203.0.113.0/24",   // documentation
		"224.0.0.0/4",      // multicast
		"240.0.0.0/4",      // reserved, broadcast
	)
	public6    = netip.MustParsePrefix("2000::/3")
	notPublic6 = prefixes(
		"2001::/23",     // protocol assignments, Teredo, ORCHID
		"2001:db8::/32", // documentation
		"2002::/16",     // 6to4, which carries any IPv4 address
		"3fff::/20",     // documentation
	)
	// nat64 is how a host without IPv4 reaches public IPv4; the last four bytes are the address.
	nat64 = netip.MustParsePrefix("64:ff9b::/96")
)

// isPublic reports whether a is an address of the public internet.
func isPublic(a netip.Addr) bool {
	if !a.IsValid() || a.Zone() != "" {
		return false
	}
	a = a.Unmap()
	if nat64.Contains(a) {
		b := a.As16()
		a = netip.AddrFrom4([4]byte(b[12:]))
	}
	refused := notPublic4
	if a.Is6() {
		if !public6.Contains(a) {
			return false
		}
		refused = notPublic6
	}
	for _, p := range refused {
		if p.Contains(a) {
			return false
		}
	}
	return true
}

// isNumberSpelling reports whether a host that is no plain IP literal would still be read as an IPv4
// address by some libraries: decimal, octal, hexadecimal, short forms, a dot at the end. The rule is
// that of the URL standard: the last label is a number.
func isNumberSpelling(host string) bool {
	host = strings.TrimSuffix(host, ".")
	last := strings.ToLower(host[strings.LastIndexByte(host, '.')+1:])
	if hex, ok := strings.CutPrefix(last, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(last, "0123456789") == ""
}
