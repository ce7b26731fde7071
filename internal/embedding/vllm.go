// SPDX-License-Identifier: Apache-2.0

package embedding

import (
	"crypto/sha256"
	"crypto/sha512"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"

	"github.com/zeebo/blake3"
)

// VLLMDefaultEncoder is the encoder field of vLLM's keys where nothing about its multimodal encoder is
// configured: the MD5 of "[None, 'weights', None, None, True]".
const VLLMDefaultEncoder = "8658476b2a0fa47e54f56cb92e3f1162"

// VLLMNaming is what vLLM's automatic identifiers depend on besides the picture. With Protocol V3,
// Encoders announce it and gateways name pictures by it.
type VLLMNaming struct {
	Model string `json:"model"`          // the path or name exactly as vLLM was given it
	Hash  string `json:"hash,omitempty"` // "blake3", "sha256" or "sha512" (VLLM_MM_HASHER_ALGORITHM); the first
}

// Validate reports a naming that cannot name anything.
func (n VLLMNaming) Validate() error {
	if n.Model == "" {
		return fmt.Errorf("embedding: vLLM's identifiers need its model path")
	}
	_, err := n.newHash()
	return err
}

func (n VLLMNaming) newHash() (hash.Hash, error) {
	switch n.Hash {
	case "", "blake3":
		return blake3.New(), nil
	case "sha256":
		return sha256.New(), nil
	case "sha512":
		return sha512.New(), nil
	}
	return nil, fmt.Errorf("embedding: unknown hash %q of identifiers, want blake3, sha256 or sha512", n.Hash)
}

// Tags of the values in the stream that vLLM hashes. Each length and count is a u64, little endian; a leaf
// and a name are a length and their bytes.
const (
	vllmSequence = 1 // count, values
	vllmMapping  = 2 // count, then name and value of each
	vllmLeaf     = 3
)

// Identifier returns vLLM's automatic identifier of an image file. rgb says whether the file decodes to
// plain RGB; where it does not, vLLM's conversion (to RGB, on white) is part of the name. There is no
// salt: tenants share these names. n must be valid.
func (n VLLMNaming) Identifier(file []byte, rgb bool) Identifier {
	h, err := n.newHash()
	if err != nil {
		panic("BUG: " + err.Error())
	}
	s := vllmStream{h}
	s.name("image")
	s.leaf([]byte("image"))
	if !rgb {
		s.count(vllmMapping, 2)
		s.name("io_config")
		s.count(vllmMapping, 2)
		s.name("image_mode")
		s.leaf([]byte("RGB"))
		s.name("rgba_background_color")
		s.count(vllmSequence, len(DefaultBackground))
		for _, v := range DefaultBackground {
			s.leaf(binary.LittleEndian.AppendUint64(nil, uint64(v)))
		}
		s.name("data")
	}
	s.leaf(file)
	s.name("model_id")
	s.leaf([]byte(n.Model))
	return Identifier(hex.EncodeToString(h.Sum(nil)))
}

// vllmStream writes values into a hash, which never fails.
type vllmStream struct{ h hash.Hash }

func (s vllmStream) number(n int) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(n))
	s.h.Write(b[:])
}

func (s vllmStream) name(text string) {
	s.number(len(text))
	s.h.Write([]byte(text))
}

func (s vllmStream) leaf(b []byte) {
	s.h.Write([]byte{vllmLeaf})
	s.number(len(b))
	s.h.Write(b)
}

func (s vllmStream) count(tag byte, n int) {
	s.h.Write([]byte{tag})
	s.number(n)
}
