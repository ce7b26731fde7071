// SPDX-License-Identifier: Apache-2.0

package openai

// Medium is one media part.
type Medium struct {
	Path       string // "messages[0].content[1]"
	Kind       string // image_url, audio_url, input_audio or video_url
	Start, End int    // span of the part in the body
	// URL is the part's URL with JSON escapes undone, a slice of the body if there were none; empty if it
	// has none.
	URL []byte
	// Tap is what has seen the URL while it came; nil if it has none.
	Tap  Tap
	UUID string // the client's name for it; "" if it gave none

	uuid, url span // of the values, zero if there is none
}

// The kinds of media parts.
var mediaKinds = [][]byte{[]byte("image_url"), []byte("audio_url"), []byte("input_audio"), []byte("video_url")}

// part passes one content part.
func (r *envelopeReader) part(path string, j int) error {
	if r.parts++; r.parts > maxParts {
		return badParam("messages", "At most %d content parts may be sent in one request.", maxParts)
	}
	if r.peek() != '{' {
		_, err := r.value()
		return err
	}
	m := Medium{Path: indexed(path, j), Start: r.i}
	var seen uint
	if _, err := r.object(func(key []byte) error { return r.partMember(&m, &seen, key) }); err != nil {
		return err
	}
	m.End = r.i
	if m.Kind == "" {
		return nil
	}
	if len(r.e.Media) >= r.maxMedia {
		return badParam("messages", "At most %d media part(s) may be sent in one request.", r.maxMedia)
	}
	r.e.Media = append(r.e.Media, m)
	return nil
}

// partMember passes one member of a part. Its type may come last, so every URL is looked at.
func (r *envelopeReader) partMember(m *Medium, seen *uint, key []byte) (err error) {
	switch name := string(key); name {
	case "type":
		if err := once(seen, bitType, m.Path, name); err != nil {
			return err
		}
		raw, err := r.value()
		if kind, ok := decodeString(raw); ok {
			for _, k := range mediaKinds {
				if kind == string(k) {
					m.Kind = kind
				}
			}
		}
		return err
	case "uuid":
		if err := once(seen, bitUUID, m.Path, name); err != nil {
			return err
		}
		r.peek()
		start := r.i
		raw, err := r.value()
		m.uuid = span{start, r.i}
		m.UUID, _ = decodeString(raw)
		if len(m.UUID) > maxUUIDBytes {
			return badParam(m.Path+".uuid", "%s.uuid has %d bytes; at most %d are allowed.", m.Path, len(m.UUID), maxUUIDBytes)
		}
		return err
	case "image_url", "audio_url", "video_url":
		if m.URL != nil {
			return badParam(m.Path, "%s has more than one URL.", m.Path)
		}
		return r.urlOf(m)
	}
	_, err = r.value()
	return err
}

// urlOf passes the value of a part's URL: an object with one, or the URL itself.
func (r *envelopeReader) urlOf(m *Medium) error {
	switch r.peek() {
	case '"':
		return r.url(m)
	case '{':
	default:
		_, err := r.value()
		return err
	}
	_, err := r.object(func(key []byte) error {
		if string(key) != "url" || r.peek() != '"' {
			_, err := r.value()
			return err
		}
		if m.URL != nil {
			return badParam(m.Path, "%s has more than one URL.", m.Path)
		}
		return r.url(m)
	})
	return err
}

func (r *envelopeReader) url(m *Medium) error {
	if r.newTap != nil {
		m.Tap = r.newTap()
		r.tap = m.Tap
	}
	start := r.i
	t, err := r.str()
	r.tap = nil
	if err != nil {
		return err
	}
	m.url = span{start, r.i}
	m.URL = t.bytes()
	if m.URL == nil {
		m.URL = []byte{}
	}
	return nil
}
