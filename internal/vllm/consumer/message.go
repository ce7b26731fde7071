// SPDX-License-Identifier: Apache-2.0

package consumer

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// Requests are written as Python's json.dumps writes them, so that they are those of vLLM's own client to the byte.

// peersRequest asks for the control ports of all shards.
var peersRequest = []byte(`{"op": "peers"}`)

// reserveRequest asks for memory for items.
func reserveRequest(items []*delivery) []byte {
	if len(items) == 1 {
		return append(appendReserve([]byte(`{"op": "reserve", `), items[0].Item), '}')
	}
	b := []byte(`{"op": "reserve_batch", "items": [`)
	for i, d := range items {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = append(appendReserve(append(b, '{'), d.Item), '}')
	}
	return append(b, "]}"...)
}

func appendReserve(b []byte, it Item) []byte {
	b = appendText(append(b, `"transfer_id": `...), it.Transfer)
	b = appendText(append(b, `, "mm_hash": `...), it.Hash)
	return fmt.Appendf(b, `, "nbytes": %d, "shape": [%d, %d], "dtype": %s`, it.Bytes(), it.Rows, it.Cols, appendText(nil, it.DType))
}

// completeRequest says that reservations have been written.
func completeRequest(at []*reserved) []byte {
	if len(at) == 1 {
		return append(appendComplete([]byte(`{"op": "complete", `), at[0]), '}')
	}
	b := []byte(`{"op": "complete_batch", "items": [`)
	for i, r := range at {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = append(appendComplete(append(b, '{'), r), '}')
	}
	return append(b, "]}"...)
}

func appendComplete(b []byte, r *reserved) []byte {
	b = appendText(append(b, `"transfer_id": `...), r.of.Transfer)
	return appendText(append(b, `, "reservation_id": `...), r.answer.ID)
}

// abandonRequest says that nothing is, or will be, written for a transfer, whatever it is: the consumer frees what it
// holds for it, and refuses it from here on.
func abandonRequest(transfer string) []byte {
	b := appendText([]byte(`{"op": "cancel", "transfer_id": `), transfer)
	return append(b, `, "reservation_id": "", "abandon": true}`...)
}

// statusRequest asks what became of a transfer.
func statusRequest(transfer string) []byte {
	return append(appendText([]byte(`{"op": "status", "transfer_id": `), transfer), '}')
}

// appendText appends a JSON string.
func appendText(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c > 0x7e || c == '"' || c == '\\' {
			text, _ := json.Marshal(s) // strings never fail
			return append(b, text...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}

// reservation is the answer to a reserve.
type reservation struct {
	ID        string `json:"reservation_id"`
	Session   string `json:"dst_session"` // host:port of the Transfer Engine
	Address   uint64 `json:"dst_ptr"`     // in the memory of the shard
	Bytes     int    `json:"nbytes"`
	Write     bool   `json:"write"`     // this transfer is to write
	Ready     bool   `json:"ready"`     // it is there
	Cancelled bool   `json:"cancelled"` // the transfer was given up before
}

// completion is the answer to a complete.
type completion struct {
	Completed   bool `json:"completed"`
	BecameReady bool `json:"became_ready"`
}

// status is the answer to a status request; nil for a transfer that the consumer does not have.
type status struct {
	Ready bool `json:"ready"`
}

// RefusedError is an answer in which the consumer refuses a request. It holds nothing for it.
type RefusedError struct{ Text string }

func (e *RefusedError) Error() string { return "the consumer refuses: " + e.Text }

// Full says that the refusal is for want of memory at this moment.
func (e *RefusedError) Full() bool { return e.Text == "EC consumer buffer pool is full" }

// envelope is what every answer comes in.
type envelope struct {
	OK     bool            `json:"ok"`
	Result json.RawMessage `json:"result"`
	Error  string          `json:"error"`
}

// open decodes the result into out, or returns the refusal.
func (e envelope) open(out any) error {
	if !e.OK {
		if e.Error == "" {
			return errors.New("the answer is neither a result nor a refusal")
		}
		return &RefusedError{e.Error}
	}
	if err := json.Unmarshal(e.Result, out); err != nil {
		return fmt.Errorf("the result %.80s: %w", e.Result, err)
	}
	return nil
}

// items are the results of a request for n items, of which one goes without a list.
func items(result json.RawMessage, n int) ([]json.RawMessage, error) {
	if n == 1 {
		return []json.RawMessage{result}, nil
	}
	var list struct {
		Items []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(result, &list); err != nil {
		return nil, fmt.Errorf("the result %.80s: %w", result, err)
	}
	if len(list.Items) != n {
		return nil, errors.New(strconv.Itoa(len(list.Items)) + " answers to " + strconv.Itoa(n) + " items")
	}
	return list.Items, nil
}
