// SPDX-License-Identifier: Apache-2.0

// Package control defines the JSON bodies and headers of the calls between the gateway and its
// workers, and the codec of the one body that is not plain JSON. It opens no connection. docs/wire.md
// describes the same calls for readers.
package control

import (
	"encoding/json"

	"afterimage/internal/embedding"
)

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

// EncodeItem is one distinct image of an encode call.
type EncodeItem struct {
	Identifier embedding.Identifier `json:"identifier"`
	Bytes      int                  `json:"bytes"`  // length of the image file in the body
	Rows       int                  `json:"rows"`   // as the Encoder's geometry said; checked again
	Grants     []Grant              `json:"grants"` // none: the embedding is wanted in the Store only
	// Wrong says that the object of this name which P/D was given is not the picture's: the Store must not keep it.
	Wrong bool `json:"wrong,omitempty"`
}

// EncodeRequest is the first line of an encode body.
type EncodeRequest struct {
	Request string       `json:"request"`
	Force   bool         `json:"force,omitempty"`  // skip local cache and Store
	Tenant  string       `json:"tenant,omitempty"` // for whose quota in the Store the embeddings count; "" is nobody's
	Items   []EncodeItem `json:"items"`
}

// DeliverRequest asks an Encoder to send embeddings to further grants: those that it has, or that a call
// which is under way is about to make. Bytes of the items is not read.
type DeliverRequest struct {
	Request string       `json:"request"`
	Items   []EncodeItem `json:"items"`
}

// Source says where an embedding came from.
type Source string

// The sources of an embedding.
const (
	SourceLocal    Source = "local"    // the Encoder's own cache
	SourceStore    Source = "store"    // the shared Store
	SourceEncoded  Source = "encoded"  // computed for this request
	SourceJoined   Source = "joined"   // computed for another request in flight at the same time, by the Encoder that delivers
	SourceResident Source = "resident" // P/D kept it
)

// Road says how the bytes of an embedding came into the reach of P/D.
type Road string

// The roads of an embedding.
const (
	RoadNone Road = "none" // they were there already
	RoadLoan Road = "loan" // they stay in the memory of a neighbour on the host
	RoadCopy Road = "copy" // they were read from the Store into P/D's memory
	RoadTCP  Road = "tcp"  // they came over a data connection
)

// Arrival says how one embedding of a request reached the prompt. P/D lists the arrivals in HeaderItems.
type Arrival struct {
	Index  int     `json:"index"` // into PrepareRequest.Items
	Road   Road    `json:"road"`
	Bytes  int     `json:"bytes"`
	WaitMS float64 `json:"wait_ms"` // from the chat call until it was there
}

// EncodedItem answers one EncodeItem.
type EncodedItem struct {
	Identifier embedding.Identifier `json:"identifier"`
	Source     Source               `json:"source,omitempty"`
	Rows       int                  `json:"rows,omitempty"`
	Cols       int                  `json:"cols,omitempty"`
	Bytes      int                  `json:"bytes,omitempty"` // size of the whole object
	Delivered  bool                 `json:"delivered"`       // every grant was confirmed by its P/D
	// Times in milliseconds: before the engine took the item; and, since the call arrived, when its rows
	// were there, and when the last P/D had confirmed.
	QueueMS     float64 `json:"queue_ms,omitempty"`
	ResolvedMS  float64 `json:"resolved_ms"`
	DeliveredMS float64 `json:"delivered_ms"`
	Error       *Error  `json:"error,omitempty"`
}

// EncodeResponse answers in order. Items fail alone.
type EncodeResponse struct {
	Encoder string        `json:"encoder"`
	Items   []EncodedItem `json:"items"`
}

// TypeDelivery is the Error.Type of an embedding that an Encoder had and a P/D did not get, whichever of
// them or the way between them failed.
const TypeDelivery = "DeliveryError"

// TypeAbsent is the Error.Type of an embedding that a DeliverRequest names and that an Encoder neither has nor
// is making.
const TypeAbsent = "AbsentError"

// Error tells a failure to the gateway, which turns it into the client's shape.
type Error struct {
	Status  int    `json:"status"` // HTTP status that the client should see
	Type    string `json:"type"`
	Message string `json:"message"`
	Param   string `json:"param,omitempty"`
}

func (e *Error) Error() string { return e.Message }

// Missing is the body of a 409 of P/D: items, by index into PrepareRequest.Items, that it lacks.
type Missing struct {
	Missing []int `json:"missing"`
	Wrong   []int `json:"wrong,omitempty"` // those of them that came, and are not what their names say
}
