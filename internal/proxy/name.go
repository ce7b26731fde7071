// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"crypto/rand"
	"encoding/hex"
)

// StatusLeft stands for a client that left, in counters, traces and logs.
const StatusLeft = 499

// RequestID takes over a client's name for its request when it is harmless, and own else.
func RequestID(s, own string) string {
	ok := s != "" && len(s) <= 128
	for i := 0; ok && i < len(s); i++ {
		ok = s[i] > ' ' && s[i] < 0x7f && s[i] != '/' && s[i] != '"' && s[i] != '\\'
	}
	if ok {
		return s
	}
	return own
}

// RandomHex returns n random bytes in hex.
func RandomHex(n int) string {
	b := make([]byte, n)
	rand.Read(b)
	return hex.EncodeToString(b)
}
