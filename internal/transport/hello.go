// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"encoding/json"
	"fmt"
	"time"

	"afterimage/internal/embedding"
)

// handshakeTimeout bounds dial-to-welcome on both sides once the connection is there.
const handshakeTimeout = 5 * time.Second

// KeyVersion is the version of identifiers, keys and object formats, which rows are named by.
const KeyVersion = 1

// hello is the body of the first frame of each side. Fields that a reader does not know are skipped,
// so that peers of one wire version may say more.
type hello struct {
	Engine  string          `json:"engine"` // as engine.EncoderSpec.Engine
	Model   string          `json:"model,omitempty"`
	Cols    int             `json:"cols"`
	DType   embedding.DType `json:"dtype"`
	Keys    int             `json:"keys"`
	Version string          `json:"version,omitempty"` // of the program, for logs
	place
	// Socket is where a receiver takes loans; senders near it go there.
	Socket string `json:"socket,omitempty"`
	// Memory is the size of the arena that a sender shows; the descriptor of it comes along.
	Memory int64 `json:"memory,omitempty"`
	// Borrows is the receiver's answer to Memory: it has mapped it.
	Borrows bool `json:"borrows,omitempty"`
}

func (h hello) encode() string {
	b, err := json.Marshal(h)
	if err != nil {
		panic("transport: BUG: hello cannot be encoded: " + err.Error()) // plain fields: cannot fail
	}
	return string(b)
}

func parseHello(b []byte) (h hello, err error) {
	if err := json.Unmarshal(b, &h); err != nil {
		return h, fmt.Errorf("%w: hello body: %w", errMalformed, err)
	}
	return h, nil
}

// fits reports why rows of peer cannot be used here, naming both values.
func (h hello) fits(peer hello) error {
	switch {
	case peer.Keys != h.Keys:
		return fmt.Errorf("peer names rows by version %d of keys, this process by %d", peer.Keys, h.Keys)
	case peer.Engine != h.Engine:
		return fmt.Errorf("peer runs engine %q, this process %q", peer.Engine, h.Engine)
	case peer.Model != h.Model && peer.Model != "" && h.Model != "":
		return fmt.Errorf("peer serves model %q, this process %q", peer.Model, h.Model)
	case peer.Cols != h.Cols:
		return fmt.Errorf("peer has rows of %d columns, this process %d", peer.Cols, h.Cols)
	case peer.DType != h.DType:
		return fmt.Errorf("peer has rows of %v, this process %v", peer.DType, h.DType)
	}
	return nil
}
