// SPDX-License-Identifier: Apache-2.0

package vllm

import (
	"bytes"
	"encoding/json"
	"strings"
)

// Answers of Encoders that cannot be told apart.
var (
	errUnmatched = badGateway("Encoder metadata cannot be matched")
	errIndex     = badGateway("Invalid encoder item index")
	errDuplicate = badGateway("Duplicate encoder item index")
)

// entryOf is one entry of an Encoder's ec_transfer_params.
type entryOf struct {
	Metadata json.RawMessage   `json:"metadata"`
	Indices  []json.RawMessage `json:"item_indices"`
}

// matching is what matchReports needs to know of a call.
type matching struct {
	uuids []string // names that were sent, "" where none was
	kinds []string
	// audioInVideo: videos may be reported as two features and then stay as they are.
	audioInVideo bool
	pushed       bool // the Encoder had a consumer to push to
}

// reportsOf reads the answer to an encode call. One that cannot be read says nothing.
func reportsOf(answer []byte) []member {
	var top struct {
		Params json.RawMessage `json:"ec_transfer_params"`
	}
	if json.Unmarshal(answer, &top) != nil || len(top.Params) == 0 || top.Params[0] != '{' {
		return nil
	}
	params, err := members(top.Params)
	if err != nil {
		return nil
	}
	// Later versions list what was bound beside the entries; the bindings are known here.
	kept := params[:0]
	for _, m := range params {
		if len(m.raw) > 0 && m.raw[0] == '{' {
			kept = append(kept, m)
		}
	}
	return kept
}

// matchReports finds the entry of each media part: by position, else by the name that was sent, else because
// there is but one. It returns indexes into params, -1 for a part that stays as it is.
func matchReports(params []member, m matching) ([]int, error) {
	at := map[int]int{}
	if len(m.uuids) > 1 {
		for k, p := range params {
			var e entryOf
			if json.Unmarshal(p.raw, &e) != nil {
				return nil, errIndex
			}
			for _, raw := range e.Indices {
				var i int
				if json.Unmarshal(raw, &i) != nil || bytes.ContainsAny(raw, ".eE") || i < 0 || i >= len(m.uuids) {
					return nil, errIndex
				}
				if _, twice := at[i]; twice {
					return nil, errDuplicate
				}
				at[i] = k
			}
		}
	}
	out := make([]int, len(m.uuids))
	for i, uuid := range m.uuids {
		k, ok := at[i]
		if !ok {
			k, ok = byName(params, uuid)
		}
		switch {
		case ok:
			out[i] = k
		case len(m.uuids) == 1 && len(params) == 1:
			out[i] = 0
		case m.kinds[i] == "video_url" && m.audioInVideo && len(params) == 2 && !m.pushed && plain(params):
			out[i] = -1
		default:
			return nil, errUnmatched
		}
	}
	return out, nil
}

func byName(params []member, uuid string) (int, bool) {
	for k, p := range params {
		if uuid != "" && p.name == uuid {
			return k, true
		}
	}
	return 0, false
}

// plain says that no entry has a handle that would have to be passed on.
func plain(params []member) bool {
	for _, p := range params {
		ms, err := members(p.raw)
		if err != nil {
			return false
		}
		for _, m := range ms {
			if !strings.EqualFold(m.name, "metadata") && m.name != "item_indices" {
				return false
			}
		}
	}
	return true
}

// metadataOf returns the metadata of an entry, empty if it has none.
func metadataOf(raw []byte) []member {
	var e entryOf
	if json.Unmarshal(raw, &e) != nil || len(e.Metadata) == 0 || e.Metadata[0] != '{' {
		return nil
	}
	ms, err := members(e.Metadata)
	if err != nil {
		return nil
	}
	return ms
}
