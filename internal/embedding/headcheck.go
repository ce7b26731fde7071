// SPDX-License-Identifier: Apache-2.0

package embedding

import "encoding/binary"

// IsA1 says whether obj claims to be an a1 object. Anything may.
func IsA1(obj []byte) bool { return len(obj) >= headBytesA1 && string(obj[:4]) == magicA1 }

// CheckHeadA1 checks what of an a1 object can be checked without its key and contract, which readers
// have: lengths and the head's sum. It returns the payload and the XXH3-64 that it should have. Errors
// wrap ErrMalformed. obj may be hostile.
func CheckHeadA1(obj []byte) (payload []byte, sum uint64, err error) {
	_, section, err := parseHeadA1(obj)
	if err != nil {
		return nil, 0, err
	}
	le := binary.LittleEndian
	if got, want := sumHeadA1(obj, section), le.Uint64(obj[headSumA1:]); got != want {
		return nil, 0, malformed("head sum %016x, want %016x", got, want)
	}
	return obj[headBytesA1+section:], le.Uint64(obj[40:]), nil
}
