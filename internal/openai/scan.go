// SPDX-License-Identifier: Apache-2.0

package openai

// Fixed limits of a body.
const (
	// maxParts and maxMessages bound what a body of tiny parts can make a reader remember.
	maxParts    = 16384
	maxMessages = 16384
	// maxUUIDBytes bounds a client's name for an image.
	maxUUIDBytes = 512
)

// ScanLimits bounds what a request may hold.
type ScanLimits struct {
	MaxImages int // image parts in one request; 0 allows none
	// Tap, if set, makes what looks at the URL of each image part while it comes in.
	Tap func() Tap
}

// Request is what the gateway needs to know of a body. It refers to the body, which must not change
// while the Request is in use.
type Request struct {
	Model string // "" if absent: the server's only model
	User  string
	// CacheSalt keeps what the request leaves behind from requests with another one; "" if it names none.
	CacheSalt string
	Stream    bool
	N         int // choices asked for; 1 if absent
	// IncludeUsage says that the stream is to end with a chunk of usage.
	IncludeUsage bool
	Messages     int         // how many there are
	Media        []MediaPart // in prompt order

	body []byte
	said span   // the value of messages
	top  fields // the others
}

// MediaPart is one image of a request.
type MediaPart struct {
	Path    string // "messages[0].content[1]"
	Message int    // index of its message
	Part    int    // index in the message's content
	Kind    string // "image_url"

	// body[Start:End] is the whole part object.
	Start, End int
	// URL is the image_url.url with JSON escapes undone: a slice of the body if there were none, so
	// that a data URL of megabytes is not copied. Empty only if UUIDOnly.
	// A tap that took the URL has left something else in its place.
	URL []byte
	// Tap is what ScanLimits.Tap made for this part.
	Tap Tap

	UUID    string // the client's name for the image; a hint, never an identity
	HasUUID bool
	// UUIDOnly says that the client sent its name for the image and no data.
	UUIDOnly bool
}

// Scan reads a chat request in one pass: it checks that body is strict JSON, reads the fields that
// the gateway needs, and finds the media parts. Every error is an *Error with status 400. It keeps
// body and copies none of its long strings.
func Scan(body []byte, l ScanLimits) (*Request, error) { return scan(scanner{b: body}, l) }

// ScanFrom is Scan of a body that is on its way in. After an error the rest of it has not been waited for;
// errors of src are returned as they are.
func ScanFrom(src Source, l ScanLimits) (*Request, error) { return scan(newScanner(src), l) }

func scan(s scanner, l ScanLimits) (*Request, error) {
	r := &Request{}
	w := walk{scanner: s, newTap: l.Tap}
	w.part = func(p *rawPart) error { return r.addPart(p, l) }
	top, err := w.body()
	if err != nil {
		return nil, err
	}
	r.Messages, r.body, r.said, r.top = w.msg, w.b, w.said, top
	return r, r.read(top)
}

// read takes the fields that the gateway needs. What P/D alone needs is checked there, before any image
// is encoded.
func (r *Request) read(top fields) (err error) {
	if r.Model, err = top.str("model"); err != nil {
		return err
	}
	if r.User, err = top.str("user"); err != nil {
		return err
	}
	if r.CacheSalt, err = top.cacheSalt(); err != nil {
		return err
	}
	if r.Stream, err = top.boolean("stream"); err != nil {
		return err
	}
	if r.IncludeUsage, err = top.includeUsage(r.Stream); err != nil {
		return err
	}
	r.N, err = top.choices()
	return err
}

// addPart notes an image part and refuses every other medium.
func (r *Request) addPart(p *rawPart, l ScanLimits) error {
	if p.kind != kindImage {
		return p.asText()
	}
	if len(r.Media) >= l.MaxImages {
		return badParam("image", "At most %d image(s) may be provided in one prompt.", l.MaxImages)
	}
	m := MediaPart{
		Path: p.path(), Message: p.message, Part: p.index, Kind: kindImage,
		Start: p.start, End: p.end,
		UUID: p.uuid, HasUUID: p.uuid != "", UUIDOnly: p.image == absent && p.uuid != "",
	}
	if !m.UUIDOnly {
		url, err := p.imageURL()
		if err != nil {
			return err
		}
		m.URL, m.Tap = url, p.tap
	}
	r.Media = append(r.Media, m)
	return nil
}

// Splice returns a copy of the body in which each media part i is replaced by replace(i), which must
// be a JSON value; nil leaves the part as it is. Every other byte is the same.
func (r *Request) Splice(replace func(i int) []byte) []byte {
	with := make([][]byte, len(r.Media))
	size := len(r.body)
	for i, m := range r.Media {
		if with[i] = replace(i); with[i] == nil {
			with[i] = r.body[m.Start:m.End]
		}
		size += len(with[i]) - (m.End - m.Start)
	}
	out := make([]byte, 0, size)
	from := 0
	for i, m := range r.Media {
		out = append(append(out, r.body[from:m.Start]...), with[i]...)
		from = m.End
	}
	return append(out, r.body[from:]...)
}

// Walk hands over the conversation as the client wrote it: its text, in pieces, and between them its media
// parts, by their index in Media. The bytes are the body's own; after the last message there are none.
func (r *Request) Walk(text func([]byte), media func(i int)) {
	from := r.said.start
	for i, m := range r.Media {
		text(r.body[from:m.Start])
		media(i)
		from = m.End
	}
	text(r.body[from : r.said.end-1])
}
