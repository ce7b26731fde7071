// SPDX-License-Identifier: Apache-2.0

package embedding

import (
	"fmt"
	"strings"
)

// NamespaceOf returns the namespace of a key that another program wrote for id, in protocol V3. A field that holds what
// separates fields may be told apart wrongly: the namespace yields the same keys all the same, which is what it is for.
func NamespaceOf(key Key, id Identifier) (n Namespace, err error) {
	rest, ok := strings.CutSuffix(string(key), "@id:"+string(id))
	text := rest
	field := func(name string) (value string) {
		at := strings.LastIndex(rest, name)
		if at < 0 {
			ok = false
			return ""
		}
		value, rest = rest[at+len(name):], rest[:at]
		return value
	}
	n.Protocol = Protocol(field("@protocol:"))
	dtype := field("@dtype:")
	n.Encoder, n.Revision = field("@encoder:"), field("@revision:")
	const first = "embedding@model:"
	if n.Prefix, n.Model, _ = strings.Cut(rest, "@"+first); strings.HasPrefix(rest, first) {
		n.Prefix, n.Model = "", rest[len(first):]
	}
	n.DType, err = ParseDType(dtype)
	if !ok || err != nil || n.Protocol != V3 || n.Validate() != nil || n.String() != text {
		return n, fmt.Errorf("embedding: %.200q is no key of %s for %.80q", key, V3, id)
	}
	return n, nil
}
