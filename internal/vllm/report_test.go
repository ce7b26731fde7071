// SPDX-License-Identifier: Apache-2.0

package vllm

import (
	"testing"
)

// TestReportsOfRealEncoders: what vLLM's Encoders were recorded to say when they were asked directly.
func TestReportsOfRealEncoders(t *testing.T) {
	for file, want := range map[string]struct {
		entries int
		part    string // of the first medium, with no name but the engine's
	}{
		"enc_no_params":     {1, `{"type":"image_embeds","image_embeds":{"image_grid_thw":[1,16,16]},"uuid":"cde544a028cf84778011530323139df72fe4203dcbd8b434f511e19bbe77827d"}`},
		"enc_consumer_dead": {1, ""},
		"enc_two_same":      {1, ""},
		"enc_uuid":          {1, ""},
		"enc_text_only":     {0, ""},
		"enc_bad_image":     {0, ""},
		"enc_uuid_kwargs":   {0, ""},
		"enc_stream":        {0, ""},
	} {
		_, body := recorded(t, "encoder_direct/"+file+".response.txt")
		params := reportsOf(body)
		if len(params) != want.entries {
			t.Errorf("%s: %d entries, want %d", file, len(params), want.entries)
			continue
		}
		for _, p := range params {
			r := report{hash: p.name, metadata: metadataOf(p.raw)}
			if !r.useful() || string(flat(r.metadata[0].raw)) != "[1,16,16]" {
				t.Errorf("%s: %s says %+v", file, p.raw, r)
			}
			if got := string(r.part("image_url", "")); want.part != "" && got != want.part {
				t.Errorf("%s: got %s, want %s", file, got, want.part)
			}
		}
	}
	// The same picture twice is one entry with two places.
	_, body := recorded(t, "encoder_direct/enc_two_same.response.txt")
	at, err := matchReports(reportsOf(body), matching{uuids: []string{"", ""}, kinds: []string{"image_url", "image_url"}})
	if err != nil || len(at) != 2 || at[0] != 0 || at[1] != 0 {
		t.Errorf("matched %v, %v", at, err)
	}
}

// TestFlat: one level of nesting is undone, and nothing else is touched.
func TestFlat(t *testing.T) {
	for raw, want := range map[string]string{
		`[1,2,2]`: `[1,2,2]`, `[[1, 2, 2]]`: `[1,2,2]`, `[[1],[2,[3]]]`: `[1,2,[3]]`, `[]`: `[]`, `[[]]`: `[]`, `[1.50,[2]]`: `[1.50,2]`, `7`: `7`, `"x"`: `"x"`, `null`: `null`,
	} {
		if got := string(flat([]byte(raw))); got != want {
			t.Errorf("%s: got %s, want %s", raw, got, want)
		}
	}
}

// TestAudioInVideo: a video whose sound is a feature of its own stays as it is, unless handles would be lost.
func TestAudioInVideo(t *testing.T) {
	two := []member{{"a", []byte(`{"metadata":{"x":[1]},"item_indices":[0]}`)}, {"b", []byte(`{"metadata":{"y":[1]}}`)}}
	m := matching{uuids: []string{"u"}, kinds: []string{"video_url"}, audioInVideo: true}
	if at, err := matchReports(two, m); err != nil || at[0] != -1 {
		t.Errorf("got %v, %v", at, err)
	}
	for _, change := range []func(*matching, *[]member){
		func(m *matching, _ *[]member) { m.audioInVideo = false },
		func(m *matching, _ *[]member) { m.pushed = true },
		func(m *matching, _ *[]member) { m.kinds = []string{"image_url"} },
		func(_ *matching, ms *[]member) { (*ms)[1].raw = []byte(`{"peer_host":"h"}`) },
	} {
		m, ms := m, append([]member(nil), two...)
		change(&m, &ms)
		if at, err := matchReports(ms, m); err != errUnmatched {
			t.Errorf("got %v, %v", at, err)
		}
	}
}

// TestContentUUID: names are those that vLLM's proxy gives, by Python's notation where there is no URL.
func TestContentUUID(t *testing.T) {
	for part, text := range map[string]string{
		`{"type":"image_url","image_url":{"url":"data:image\/png;base64,AA\u0041A"}}`: `data:image/png;base64,AAAA`,
		`{"type":"image_url","image_url":{"url":"http://x/é"}}`:                       `http://x/é`,
		`{"type":"input_audio","input_audio":{"format":"wav","data":"AAAA"}}`:         `{"input_audio": {"data": "AAAA", "format": "wav"}, "type": "input_audio"}`,
		`{"type":"input_audio","b":[1,2.50,1e20,true,null],"a":"é🖼\n"}`:               `{"a": "\u00e9\ud83d\uddbc\n", "b": [1, 2.5, 1e+20, true, null], "type": "input_audio"}`,
		`{"type":"input_audio","x":{},"y":[]}`:                                        `{"type": "input_audio", "x": {}, "y": []}`,
	} {
		e := envelope(t, chat(part))
		if got, want := newNames().contentUUID(e, 0), nameOf([]byte(text)); got != want {
			t.Errorf("%s is not named by %s", part, text)
		}
	}
}
