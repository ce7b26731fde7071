// SPDX-License-Identifier: Apache-2.0

package control

import "afterimage/internal/embedding"

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
