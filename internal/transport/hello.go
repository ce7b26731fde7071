// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"encoding/json"
	"fmt"
	"time"
)

// handshakeTimeout bounds dial-to-welcome on both sides once the connection is there.
const handshakeTimeout = 5 * time.Second

// hello is the body of the first frame of each side. Fields that a reader does not know are skipped,
// so that peers of one wire version may say more.
type hello struct {
	Engine string `json:"engine"` // as engine.EncoderSpec.Engine
	Cols   int    `json:"cols"`
}

func (h hello) encode() []byte {
	b, err := json.Marshal(h)
	if err != nil {
		panic("transport: BUG: hello cannot be encoded: " + err.Error()) // two plain fields: cannot fail
	}
	return b
}

func parseHello(b []byte) (h hello, err error) {
	if err := json.Unmarshal(b, &h); err != nil {
		return h, fmt.Errorf("%w: hello body: %w", errMalformed, err)
	}
	return h, nil
}

// fits reports why rows of peer cannot be used here, naming both values.
func (h hello) fits(peer hello) error {
	if peer.Engine != h.Engine {
		return fmt.Errorf("peer runs engine %q, this process %q", peer.Engine, h.Engine)
	}
	if peer.Cols != h.Cols {
		return fmt.Errorf("peer has rows of %d columns, this process %d", peer.Cols, h.Cols)
	}
	return nil
}
