// SPDX-License-Identifier: Apache-2.0

package embedding

import (
	"errors"
	"fmt"
	"strings"

	"github.com/zeebo/xxh3"
)

// Protocol names an object format in a key. Objects of different protocols never share a key.
type Protocol string

// The two object formats.
const (
	// V3 is the interchange format of vLLM: a 24-byte header and the payload.
	V3 Protocol = "v3"
	// A1 is the native format: a 64-byte head with checksums, the layout, and the payload.
	A1 Protocol = "a1"
)

// Key is the full name of an object in a Store: a namespace, "@id:", and an identifier.
//
// Keys are built, never taken apart: the grammar of v3 writes its fields raw, so a field that
// contains "@id:" makes a key ambiguous.
type Key string

// Sum is XXH3-64 of the key: what hints, and the heads of a1 objects, name it by.
func (k Key) Sum() uint64 { return xxh3.HashString(string(k)) }

// Namespace is everything of a key but the identifier: what made the embedding. Two workers share
// outputs exactly when their namespaces are equal.
type Namespace struct {
	Prefix   string   `json:"prefix,omitempty"`   // embedding_cache_prefix; left out of the key when empty
	Model    string   `json:"model"`              // model identity
	Revision string   `json:"revision,omitempty"` // empty means "default"
	Encoder  string   `json:"encoder"`            // fingerprint of all that computes the output
	DType    DType    `json:"dtype"`
	Protocol Protocol `json:"protocol"`
}

// String returns the namespace as keys carry it. The grammar is that of vLLM's v3 keys
// (mooncake_store_embedding/data.py): plain concatenation, nothing escaped.
func (n Namespace) String() string {
	var b strings.Builder
	if n.Prefix != "" {
		b.WriteString(n.Prefix)
		b.WriteByte('@')
	}
	rev := n.Revision
	if rev == "" {
		rev = "default"
	}
	fmt.Fprintf(&b, "embedding@model:%s@revision:%s@encoder:%s@dtype:%s@protocol:%s",
		n.Model, rev, n.Encoder, n.DType, n.Protocol)
	return b.String()
}

// Key returns the key of id in n.
func (n Namespace) Key(id Identifier) Key { return Key(n.String() + "@id:" + string(id)) }

// Validate reports a namespace that cannot name anything.
func (n Namespace) Validate() error {
	switch {
	case n.Model == "":
		return errors.New("embedding: namespace without a model")
	case n.Encoder == "":
		return errors.New("embedding: namespace without an encoder fingerprint")
	case n.DType.Bytes() == 0:
		return fmt.Errorf("embedding: namespace with unsupported dtype code %d", uint32(n.DType))
	case n.Protocol != V3 && n.Protocol != A1:
		return fmt.Errorf("embedding: namespace with unknown protocol %q", n.Protocol)
	}
	return nil
}
