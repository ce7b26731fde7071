// SPDX-License-Identifier: Apache-2.0

package control

import "afterimage/internal/embedding"

// PathTraces is where the gateway shows traces: GET PathTraces/{trace} -> Trace, the name being that of
// HeaderTrace.
const PathTraces = "/v1/traces"

// TraceItem says where the embedding of one media part came from.
type TraceItem struct {
	Index      int                  `json:"index"` // media part, in prompt order
	Identifier embedding.Identifier `json:"identifier"`
	Source     Source               `json:"source"`
	Fetch      string               `json:"fetch,omitempty"`   // of one behind a URL: fetched, revalidated or refetched
	Encoder    string               `json:"encoder,omitempty"` // "" when P/D had it, or took it from the Store
	Road       Road                 `json:"road,omitempty"`    // by which the bytes came to P/D; "" when it did not tell
	Rows       int                  `json:"rows,omitempty"`
	Cols       int                  `json:"cols,omitempty"`
	Bytes      int                  `json:"bytes"`
	MS         float64              `json:"ms"` // from the Encoder's receipt to the confirmed delivery
	// Of MS: the time before the engine took it, and from when it was there to the confirmed delivery.
	QueueMS    float64 `json:"queue_ms"`
	TransferMS float64 `json:"transfer_ms"`
	WaitMS     float64 `json:"wait_ms"` // from the chat call at P/D until it was there
}

// TraceStage is a point that a request passed.
type TraceStage struct {
	Name string  `json:"name"` // read, media, prepare, delivered (by Encoders), prefill (first token; with Decode, the prompt), handoff (first token of Decode), total
	MS   float64 `json:"ms"`   // since the request arrived
}

// Trace is what the gateway remembers of one request. It holds no content.
type Trace struct {
	Request  string  `json:"request"`
	Done     bool    `json:"done"`
	Status   int     `json:"status,omitempty"`
	Error    string  `json:"error,omitempty"` // as the client saw it
	Prefill  string  `json:"prefill,omitempty"`
	Decode   string  `json:"decode,omitempty"` // who gave the answer, where it is not Prefill
	Attempts int     `json:"attempts"`
	StoreMS  float64 `json:"store_ms"` // for the Store's answer to P/D
	GrantMS  float64 `json:"grant_ms"` // for memory at P/D
	// HandOffBytes is the size of the state that went to Decode, HandOffMS what its delivery took.
	HandOffBytes int     `json:"handoff_bytes,omitempty"`
	HandOffMS    float64 `json:"handoff_ms,omitempty"`

	Items  []TraceItem  `json:"items"`
	Stages []TraceStage `json:"stages"`
}
