// SPDX-License-Identifier: Apache-2.0

package embedding

import (
	"encoding/binary"
	"math"
	"strings"
)

// ProtocolOf returns the format that objects of a key have, "" when the key does not say so without doubt.
// It is for tools that look at other people's objects; who uses one knows its namespace.
func ProtocolOf(key Key) Protocol {
	var found Protocol
	for _, p := range []Protocol{V3, A1} {
		if strings.Contains(string(key), "@protocol:"+string(p)+"@id:") {
			if found != "" {
				return ""
			}
			found = p
		}
	}
	return found
}

// Inspect is Open by the object's own word, for tools that have no contract: the format is that of the
// key, or else what the object claims, and the dimensions are the object's. What it passes is sound in
// itself, which does not make it fit for any use. Errors wrap ErrMalformed, ErrForeign or ErrCorrupt. obj
// may be hostile.
func Inspect(obj []byte, key Key) (Protocol, Meta, []byte, error) {
	p := ProtocolOf(key)
	if p == "" {
		if p = V3; IsA1(obj) {
			p = A1
		}
	}
	own := Contract{MaxRows: math.MaxInt32}
	le := binary.LittleEndian
	switch {
	case p == A1 && len(obj) >= headBytesA1:
		own.DType, own.Cols = DType(le.Uint32(obj[8:])), int(min(le.Uint64(obj[24:]), math.MaxInt32))
	case p == V3 && len(obj) >= HeaderBytesV3:
		own.DType, own.Cols = DType(le.Uint32(obj[4:])), int(min(le.Uint64(obj[16:]), math.MaxInt32))
	}
	m, payload, err := p.Open(obj, key, own)
	return p, m, payload, err
}
