// SPDX-License-Identifier: Apache-2.0

package vllm

import "afterimage/internal/openai"

// medium is a media part of a request as it goes to workers.
type medium struct {
	uuid string // the client's name for it, else that of its content
	// url, if not nil, stands in the place of the client's URL: a JSON string, in pieces.
	url [][]byte
	// content is the name of what the part holds, whatever the client calls it; "" if it is not known.
	content string
	// cover stands in the place of the client's name where the medium goes on unnamed otherwise; "" leaves that.
	cover string
	file  []byte // what was fetched; nil if the client sent it
}

// passedOn are the members of a client's body that change what an Encoder makes of its media, in the order in
// which vLLM's proxy copies them.
var passedOn = []string{"mm_processor_kwargs", "media_io_kwargs", "priority", "session_id"}

// handles are the members that tie the calls of one request together. A client has no say in them: they make
// workers reach for memory and hosts.
var handles = []string{"ec_transfer_params", "kv_transfer_params"}

// group is a call to one Encoder.
type group struct {
	encoder   *entry
	items     []int    // media parts, in order
	transfers []string // a transfer id for each
}

// encodeBody returns the body of a call for the media of g, in pieces. consumer is where the Encoder pushes to,
// "" if it does not. short says for which media the name is enough, since the Encoder holds them.
func encodeBody(e *openai.Envelope, all []medium, g group, rewrite bool, consumer string, short func(i int) bool) [][]byte {
	model := e.Raw("model")
	if model == nil {
		model = []byte("null")
	}
	out := [][]byte{[]byte(`{"model":`), model, []byte(`,"messages":[{"role":"user","content":[`)}
	for n, i := range g.items {
		if n > 0 {
			out = append(out, []byte(","))
		}
		switch {
		case short(i):
			out = append(out, append(openai.AppendString([]byte(`{"type":"image_url","image_url":null,"uuid":`), all[i].uuid), '}'))
		case rewrite:
			out = append(out, e.Part(i, all[i].url, all[i].uuid)...)
		default:
			// The consumer hashes the media for itself, so the Encoder must do the same.
			out = append(out, e.Part(i, all[i].url, all[i].cover)...)
		}
	}
	tail := []byte(`]}],"stream":false`)
	for _, name := range passedOn {
		if raw := e.Raw(name); raw != nil {
			tail = append(append(tail, `,"`+name+`":`...), raw...)
		}
	}
	if consumer != "" {
		tail = openai.AppendString(append(tail, `,"ec_transfer_params":{"consumer_zmq":`...), consumer)
		tail = append(tail, `,"ec_items":[`...)
		for n, id := range g.transfers {
			if n > 0 {
				tail = append(tail, ',')
			}
			tail = append(openai.AppendString(append(tail, `{"transfer_id":`...), id), '}')
		}
		tail = append(tail, `]}`...)
	}
	return append(out, append(tail, '}'))
}

// noTransfer is what prefill is told of a request whose decode runs elsewhere.
var noTransfer = []byte(`{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,"remote_block_ids":null,"remote_host":null,"remote_port":null}`)

// prefillEdit turns the edit for the decode worker into that for the prefill worker.
func prefillEdit(e *openai.Envelope, ed openai.Edit) openai.Edit {
	one := []byte("1")
	set := append(append([]openai.Field{}, ed.Set...),
		openai.Field{Name: "kv_transfer_params", Value: noTransfer},
		openai.Field{Name: "stream", Value: []byte("false")},
		openai.Field{Name: "max_tokens", Value: one})
	if e.Raw("max_completion_tokens") != nil {
		set = append(set, openai.Field{Name: "max_completion_tokens", Value: one})
	}
	return openai.Edit{Part: ed.Part, Set: set, Drop: append(append([]string{}, ed.Drop...), "stream_options")}
}

// decodeEdit returns the edit for the decode worker: media replaced by what the Encoders reported, and the
// handles of this attempt.
func decodeEdit(e *openai.Envelope, all []medium, reports []report, handed handed, rewrite bool) openai.Edit {
	ed := openai.Edit{Drop: handles}
	raw := rawAudio(e, reports)
	if rewrite {
		ed.Part = func(i int) [][]byte {
			switch {
			case raw:
				return e.Part(i, all[i].url, all[i].uuid)
			case reports[i].useful():
				return [][]byte{reports[i].part(e.Media[i].Kind, all[i].uuid)}
			}
			return e.Part(i, all[i].url, all[i].cover)
		}
	} else {
		ed.Part = func(i int) [][]byte { return e.Part(i, all[i].url, all[i].cover) }
	}
	if params := handed.params(reports, raw, rewrite); params != nil {
		ed.Set = append(ed.Set, openai.Field{Name: "ec_transfer_params", Value: params})
	}
	return ed
}

// rawAudio says that all media stay as they are: audio processors may take up the places of other media, so
// that it is all or none.
func rawAudio(e *openai.Envelope, reports []report) bool {
	audio, lacking := false, false
	for i, m := range e.Media {
		audio = audio || m.Kind == "audio_url" || m.Kind == "input_audio"
		lacking = lacking || !reports[i].useful()
	}
	return audio && lacking
}

// embeds is the kind of part that takes the place of a medium.
func embeds(kind string) string {
	switch kind {
	case "image_url":
		return "image_embeds"
	case "video_url":
		return "video_embeds"
	}
	return "audio_embeds"
}
