// SPDX-License-Identifier: Apache-2.0

package control

// Paths of the hand-over of a computed prompt from a P/D to a decode worker.
const (
	PathAdopt   = "/v1/adopt"   // POST decode: AdoptRequest -> AdoptResponse; DELETE /v1/adopt/{request}
	PathHandOff = "/v1/handoff" // POST P/D: HandOffRequest -> HandOffResponse; DELETE /v1/handoff/{request}
)

// HeaderHandOff, in a chat or completions call to P/D, says that the gateway has a decode worker for the answer.
// P/D then ends with the prompt, and answers with a HandOff of type HandOffType; or it answers as ever, where it
// keeps no states, or the request is none that can move.
const HeaderHandOff = "X-Afterimage-Hand-Off"

// HandOffType is the media type of a HandOff.
const HandOffType = "application/x-afterimage-handoff"

// HandOff describes a computed prompt. P/D keeps its object, under the name of the attempt (HeaderPrepare), until
// it is told to let go or its time is over.
type HandOff struct {
	Bytes  int `json:"bytes"`  // size of the whole object
	Rows   int `json:"rows"`   // of StateCols float32 each, in the object
	Logits int `json:"logits"` // numbers at the start of the payload
	State  int `json:"state"`  // bytes of the sequence's state behind them
	// Cells and Positions are what the prompt takes.
	Cells     int `json:"cells"`
	Positions int `json:"positions"`
	// PromptTokens and CachedTokens are for the usage of the answer.
	PromptTokens int `json:"prompt_tokens"`
	CachedTokens int `json:"cached_tokens"`
}

// StateCols is the width of the rows that the object of a state is made of. They mean nothing: a state and its
// padding are cut into them so that it travels as embeddings do.
const StateCols = 256

// AdoptRequest asks a decode worker to make room for a state.
type AdoptRequest struct {
	Request string  `json:"request"` // name of the attempt; the call for the answer carries it in HeaderPrepare
	Engine  string  `json:"engine"`  // of the P/D
	HandOff HandOff `json:"handoff"`
}

// AdoptResponse is what the P/D needs to deliver.
type AdoptResponse struct {
	Grant   Grant   `json:"grant"`
	GrantMS float64 `json:"grant_ms,omitempty"` // milliseconds that the memory took
}

// HandOffRequest has a P/D deliver the state of an attempt.
type HandOffRequest struct {
	Request string `json:"request"`
	Grant   Grant  `json:"grant"`
}

// HandOffResponse says that the decode worker has confirmed it.
type HandOffResponse struct {
	MS float64 `json:"ms"` // milliseconds that the delivery took
}
