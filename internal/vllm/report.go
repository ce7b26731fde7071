// SPDX-License-Identifier: Apache-2.0

package vllm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"afterimage/internal/openai"
)

// member is a member of a JSON object, in the order in which it stands there.
type member struct {
	name string
	raw  json.RawMessage
}

// members splits a JSON object.
func members(raw []byte) ([]member, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.Join(err, errors.New("not an object"))
	}
	var out []member
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return nil, err
		}
		m := member{name: fmt.Sprint(t)}
		if err := dec.Decode(&m.raw); err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	_, err := dec.Token()
	return out, err
}

// report is what an Encoder said of one media part. The zero value says nothing.
type report struct {
	hash     string   // the engine's name for it; "" without a report
	metadata []member // what sizes its place in the prompt
	transfer string
}

// useful says whether the medium itself can stay behind.
func (r report) useful() bool { return r.hash != "" && len(r.metadata) > 0 }

// part returns what stands in the place of the medium, which has the name uuid.
func (r report) part(kind, uuid string) []byte {
	if uuid == "" {
		uuid = r.hash
	}
	name := embeds(kind)
	out := append([]byte(`{"type":"`+name+`","`+name+`":`), '{')
	for i, m := range r.metadata {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(openai.AppendString(out, m.name), ':'), flat(m.raw)...)
	}
	return append(openai.AppendString(append(out, `},"uuid":`...), uuid), '}')
}

// flat undoes one level of a vector of vectors: what reports stack per item, the consumer stacks again.
func flat(raw []byte) []byte {
	var outer []json.RawMessage
	if json.Unmarshal(raw, &outer) != nil {
		return compact(raw)
	}
	var all [][]byte
	for _, x := range outer {
		var inner []json.RawMessage
		if x[0] != '[' || json.Unmarshal(x, &inner) != nil {
			all = append(all, compact(x))
			continue
		}
		for _, y := range inner {
			all = append(all, compact(y))
		}
	}
	return append(append([]byte{'['}, bytes.Join(all, comma)...), ']')
}

var comma = []byte(",")

func compact(raw []byte) []byte {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return raw
	}
	return b.Bytes()
}

// handed collects what the Encoders of one attempt reported, by the engine's names, in the order of the
// calls.
type handed struct{ entries []member }

func (h *handed) add(m member) {
	for i := range h.entries {
		if h.entries[i].name == m.name {
			h.entries[i].raw = m.raw
			return
		}
	}
	h.entries = append(h.entries, m)
}

// params returns ec_transfer_params for the consumer, nil if there is nothing to tell. vLLM's proxy writes its
// two parts in one order with rewriting and in the other without.
func (h *handed) params(reports []report, rawAudio, rewrite bool) []byte {
	var items []byte
	for _, r := range reports {
		if r.hash == "" || r.transfer == "" || rewrite && !rawAudio && !r.useful() {
			continue
		}
		if items != nil {
			items = append(items, ',')
		}
		items = openai.AppendString(append(items, `{"mm_hash":`...), r.hash)
		items = append(openai.AppendString(append(items, `,"transfer_id":`...), r.transfer), '}')
	}
	var parts [][]byte
	for _, m := range h.entries {
		parts = append(parts, append(append(openai.AppendString(nil, m.name), ':'), compact(m.raw)...))
	}
	if items != nil {
		list := append(append([]byte(`"ec_items":[`), items...), ']')
		if rewrite {
			parts = append([][]byte{list}, parts...)
		} else {
			parts = append(parts, list)
		}
	}
	if parts == nil {
		return nil
	}
	return append(append([]byte{'{'}, bytes.Join(parts, comma)...), '}')
}

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
