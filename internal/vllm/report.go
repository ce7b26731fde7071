// SPDX-License-Identifier: Apache-2.0

package vllm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

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
	if raw[0] != '[' || json.Unmarshal(raw, &outer) != nil {
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
