// SPDX-License-Identifier: Apache-2.0

package media

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Hosts is a list of host names and address ranges. The zero value is empty.
type Hosts struct {
	names  []string // exact ones; with a dot in front, all below
	ranges []netip.Prefix
}

// ParseHosts reads a list of names ("example.com"), all names below one ("*.example.com"), addresses and ranges
// ("10.1.0.0/16").
func ParseHosts(list []string) (h Hosts, err error) {
	for _, text := range list {
		if p, err := netip.ParsePrefix(text); err == nil {
			if p.Addr().Is4In6() {
				return Hosts{}, fmt.Errorf("%q is IPv4 in IPv6; write the range of IPv4", text)
			}
			h.ranges = append(h.ranges, p.Masked())
			continue
		}
		if a, err := netip.ParseAddr(strings.Trim(text, "[]")); err == nil && a.Zone() == "" {
			a = a.Unmap()
			h.ranges = append(h.ranges, netip.PrefixFrom(a, a.BitLen()))
			continue
		}
		name, below := strings.CutPrefix(plainName(text), "*.")
		if !isName(name) {
			return Hosts{}, fmt.Errorf("%q is no host: write a name, *.NAME, an address or a range such as 10.0.0.0/8", text)
		}
		if below {
			name = "." + name
		}
		h.names = append(h.names, name)
	}
	return h, nil
}

// isName says whether s could be the name of a host in ASCII, which is what names are compared in.
func isName(s string) bool {
	if s == "" || len(s) > 253 || isNumberSpelling(s) {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return false
		}
	}
	return true
}

// plainName is a name as names are compared.
func plainName(s string) string { return strings.TrimSuffix(strings.ToLower(s), ".") }

func (h Hosts) empty() bool { return len(h.names)+len(h.ranges) == 0 }

// named says whether a name is in the list.
func (h Hosts) named(host string) bool {
	host = plainName(host)
	return slices.ContainsFunc(h.names, func(n string) bool {
		return n == host && n[0] != '.' || n[0] == '.' && len(host) > len(n) && strings.HasSuffix(host, n)
	})
}

// holds says whether an address is in one of the list's ranges.
func (h Hosts) holds(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	return slices.ContainsFunc(h.ranges, func(p netip.Prefix) bool { return p.Contains(a) })
}
