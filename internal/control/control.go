// SPDX-License-Identifier: Apache-2.0

// Package control defines the JSON bodies and headers of the calls between the gateway and its
// workers, and the codec of the one body that is not plain JSON. It opens no connection. docs/wire.md
// describes the same calls for readers.
package control

import "afterimage/internal/embedding"

// Paths of the worker API.
const (
	PathWorker   = "/v1/worker"           // GET: Announcement
	PathHeld     = "/v1/held"             // GET Encoder: Held; ?since=N asks for what has changed since its Version N
	PathGeometry = "/v1/geometry"         // POST Encoder: GeometryRequest -> GeometryResponse
	PathEncode   = "/v1/encode"           // POST Encoder: EncodeRequest + image bytes -> EncodeResponse
	PathDeliver  = "/v1/deliver"          // POST Encoder: DeliverRequest -> EncodeResponse
	PathDrain    = "/v1/drain"            // POST worker: DrainRequest -> 202 Announcement
	PathPrepare  = "/v1/prepare"          // POST P/D: PrepareRequest -> PrepareResponse; DELETE /v1/prepare/{request}
	PathChat     = "/v1/chat/completions" // POST P/D: the client's body, media replaced by item parts
	PathText     = "/v1/completions"      // POST P/D: the client's body
)

// Headers of the worker API.
const (
	// HeaderRequestID is the client's name of the request; it is echoed and never a key.
	HeaderRequestID = "X-Request-Id"
	// HeaderPrepare is the gateway's own name of one attempt, unique in the fleet; it ties a chat call
	// to its PrepareRequest.
	HeaderPrepare = "X-Afterimage-Prepare"
	// HeaderEncoder, sent by a client to the gateway, picks an Encoder by index or name for a
	// demonstration or a measurement; a list with commas picks one for each media part.
	HeaderEncoder = "X-Afterimage-Encoder"
	// HeaderPrefill picks a P/D in the same way.
	HeaderPrefill = "X-Afterimage-Prefill"
	// HeaderScope, sent by a gateway to a P/D, is a salt in hex: only prompts of one salt share what was computed
	// for their beginnings.
	HeaderScope = "X-Afterimage-Scope"
	// HeaderItems, in P/D's answer, is a JSON list of Arrival.
	HeaderItems = "X-Afterimage-Items"
	// HeaderFirstToken, in a worker's answer that is not streamed, is how many milliseconds its first token took from
	// the call on: what the prompt took, and with it the rest.
	HeaderFirstToken = "X-Afterimage-First-Token-MS"
	// HeaderTrace, in the gateway's answer, is the random name under which it shows the trace.
	HeaderTrace = "X-Afterimage-Trace"
)

// EncodeContentType is the media type of an encode body: one line of JSON (EncodeRequest), a line
// feed, then the image files back to back, in item order, ItemBytes long each.
const EncodeContentType = "application/x-afterimage-encode"

// ItemPartType is the type of the content part that replaces a media part in the body for P/D:
// {"type":"afterimage_item","index":0}, the index counting media positions in prompt order.
const ItemPartType = "afterimage_item"

// Announcement is what a worker says of itself. The gateway asks for it once per probe.
type Announcement struct {
	Role     string          `json:"role"` // "encoder", "prefill" or "decode"
	Name     string          `json:"name"` // unique in the fleet, e.g. "encoder-0"
	Boot     string          `json:"boot"` // random per process start
	Version  string          `json:"version"`
	Wire     int             `json:"wire"` // version of data frames; likewise equal
	Keys     int             `json:"keys"` // version of identifiers, keys and object formats; likewise
	Model    string          `json:"model"`
	Engine   string          `json:"engine"`            // must be equal on an Encoder and a P/D that work together
	Backend  string          `json:"backend,omitempty"` // what computes, for people
	Cols     int             `json:"cols"`              // as engine
	DType    embedding.DType `json:"dtype"`
	Modelled bool            `json:"modelled,omitempty"`
	Ready    bool            `json:"ready"`
	Reason   string          `json:"reason,omitempty"` // why not ready

	// Encoder only.
	Namespace  *embedding.Namespace  `json:"namespace,omitempty"`
	VLLM       *embedding.VLLMNaming `json:"vllm,omitempty"` // names pictures as vLLM does; with a namespace of v3
	Processing *embedding.Processing `json:"processing,omitempty"`
	MaxRows    int                   `json:"max_rows,omitempty"`
	Held       uint64                `json:"held,omitempty"` // Held.Version of this moment

	// HandsOver says of a P/D that it keeps states of prompts for decode workers.
	HandsOver bool `json:"hands_over,omitempty"`

	// P/D and decode worker.
	Context   int   `json:"context,omitempty"`    // positions of one sequence
	PoolBytes int64 `json:"pool_bytes,omitempty"` // memory for embeddings in flight
	Cells     int   `json:"cells,omitempty"`      // tokens and rows of all sequences together
	Running   int   `json:"running,omitempty"`    // requests in work
	Waiting   int   `json:"waiting,omitempty"`
	Created   int64 `json:"created,omitempty"` // unix seconds, for /v1/models
}

// Size is a picture's size in pixels, upright.
type Size struct {
	Width  int `json:"width"`
	Height int `json:"height"`
}

// GeometryRequest asks how many rows pictures of these sizes yield.
type GeometryRequest struct {
	Sizes []Size `json:"sizes"`
}

// Geometry is the answer for one size.
type Geometry struct {
	Rows   int `json:"rows"`
	Tokens int `json:"tokens"` // length in the prompt: rows, and the tokens round them
	Bytes  int `json:"bytes"`  // size of the whole object
}

// GeometryResponse answers in order.
type GeometryResponse struct {
	Sizes []Geometry `json:"sizes"`
}

// Error tells a failure to the gateway, which turns it into the client's shape.
type Error struct {
	Status  int    `json:"status"` // HTTP status that the client should see
	Type    string `json:"type"`
	Message string `json:"message"`
	Param   string `json:"param,omitempty"`
}

func (e *Error) Error() string { return e.Message }
