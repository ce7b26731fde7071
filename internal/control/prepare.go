// SPDX-License-Identifier: Apache-2.0

package control

import (
	"encoding/json"

	"afterimage/internal/embedding"
)

// PrepareItem is one distinct embedding that a request needs.
type PrepareItem struct {
	Identifier embedding.Identifier `json:"identifier"`
	Key        embedding.Key        `json:"key"`
	Contract   embedding.Contract   `json:"contract"`
	Tokens     int                  `json:"tokens"` // length in the prompt: rows, and the tokens round them
	Bytes      int                  `json:"bytes"`  // size of the whole object
	// Force says that what P/D or the Store holds must not be used (repair).
	Force bool `json:"force_encode,omitempty"`
	// ByEncoder says that an Encoder is to deliver it, whatever else has it: the client named one.
	ByEncoder bool `json:"by_encoder,omitempty"`
}

// Sized says whether the size of the object is known. A gateway that could ask no Encoder knows none:
// rows, tokens and bytes are 0, and P/D takes them from the object, if it can find it.
func (it *PrepareItem) Sized() bool { return it.Contract.Rows != 0 || it.Tokens != 0 || it.Bytes != 0 }

// PrepareRequest asks a P/D to check a request and make room for its embeddings, before any of them
// is computed.
type PrepareRequest struct {
	Request string        `json:"request"` // as in HeaderPrepare
	Engine  string        `json:"engine"`  // of the Encoders that will deliver
	Items   []PrepareItem `json:"items"`
	// Uses says which of Items stands at each media position of the prompt: the same image twice is
	// one item used twice.
	Uses []int `json:"uses"`
	// Chat is the body that will be posted, so that a request that cannot be served is refused before
	// any image is encoded.
	Chat json.RawMessage `json:"chat"`
}

// ItemState says what P/D needs for an item.
type ItemState string

// The states of a prepared item.
const (
	Ready   ItemState = "ready"   // P/D has it
	Loading ItemState = "loading" // P/D is getting it
	Need    ItemState = "need"    // an Encoder must deliver it
)

// PreparedItem answers one PrepareItem.
type PreparedItem struct {
	State ItemState `json:"state"`
	Grant *Grant    `json:"grant,omitempty"` // with Need
	// Source says where P/D takes the embedding from, Bytes what its object takes; not with Need.
	Source Source `json:"source,omitempty"`
	Rows   int    `json:"rows,omitempty"` // with Ready
	Bytes  int    `json:"bytes,omitempty"`
}

// PrepareResponse answers in the order of PrepareRequest.Items.
type PrepareResponse struct {
	Items []PreparedItem `json:"items"`
	// PromptTokens is the length of the prompt in tokens, images included.
	PromptTokens int `json:"prompt_tokens"`
	// Times in milliseconds: for the Store's answer, and for memory to grant.
	StoreMS float64 `json:"store_ms,omitempty"`
	GrantMS float64 `json:"grant_ms,omitempty"`
}

// Grant lets an Encoder write one object into memory that a P/D reserved for it.
type Grant struct {
	Address    string `json:"address"`    // host:port of the P/D's data listener
	Transfer   string `json:"transfer"`   // 32 hex digits, never used twice
	Attempt    uint32 `json:"attempt"`    // grows with each repair of the same transfer
	Generation uint64 `json:"generation"` // of the receiving process; a restart makes old grants void
	Bytes      int    `json:"bytes"`      // room reserved
}

// Missing is the body of a 409 of P/D: items, by index into PrepareRequest.Items, that it lacks.
type Missing struct {
	Missing []int `json:"missing"`
	Wrong   []int `json:"wrong,omitempty"` // those of them that came, and are not what their names say
}
