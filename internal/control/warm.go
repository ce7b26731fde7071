// SPDX-License-Identifier: Apache-2.0

package control

import "afterimage/internal/embedding"

// PathWarm is the gateway's call that fills the Store without asking anything: WarmRequest ->
// WarmResponse.
const PathWarm = "/v1/warm"

// WarmImage names one picture, as an image_url part of a chat does.
type WarmImage struct {
	URL string `json:"url"` // data:, http: or https:
}

// WarmRequest asks for embeddings of pictures to be in the Store.
type WarmRequest struct {
	Model  string      `json:"model,omitempty"` // "" is the only one
	Images []WarmImage `json:"images"`
}

// WarmItem answers one WarmImage.
type WarmItem struct {
	Index      int                  `json:"index"`
	Identifier embedding.Identifier `json:"identifier,omitempty"`
	Key        embedding.Key        `json:"key,omitempty"`
	Source     Source               `json:"source,omitempty"` // store: it was there
	Encoder    string               `json:"encoder,omitempty"`
	Rows       int                  `json:"rows,omitempty"`
	Cols       int                  `json:"cols,omitempty"`
	Bytes      int                  `json:"bytes,omitempty"`
	MS         float64              `json:"ms"` // since the request arrived
	Error      *Error               `json:"error,omitempty"`
}

// WarmResponse answers in order. Items fail alone.
type WarmResponse struct {
	Items []WarmItem `json:"items"`
}
