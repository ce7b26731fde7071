// SPDX-License-Identifier: Apache-2.0

package control

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
