// SPDX-License-Identifier: Apache-2.0

package openai

import "fmt"

// Envelope is a chat body that goes on to workers which read it for themselves: only its frame is known
// here, where its members and its media parts are, and the rest is whatever the client sent. It refers to
// the body, which must not change while the Envelope is in use.
type Envelope struct {
	Stream bool
	Media  []Medium // in prompt order

	body    []byte
	members []member
	open    int // offset behind the opening brace
	close   int // offset of the closing brace
}

// member is a top-level member of a body.
type member struct {
	name       string // escapes undone
	start, end int    // from the opening quote of the key to the end of the value
	value      int    // where the value starts
}

// ReadEnvelope reads the frame of a body that is on its way in and may have maxMedia media parts. newTap, if not
// nil, makes what looks at the URL of each while it comes; it must not write over it. The body must be one object in strict JSON; what
// makes no frame, such as a missing message, is left to the worker. Errors are *Error with status 400, or
// those of src, and the rest of the body has not been waited for.
func ReadEnvelope(src Source, maxMedia int, newTap func() Tap) (*Envelope, error) {
	r := &envelopeReader{scanner: newScanner(src), e: &Envelope{}, maxMedia: maxMedia, newTap: newTap, top: fields{}}
	err := r.read()
	if r.broken != nil {
		err = r.broken
	}
	if err != nil {
		return nil, err
	}
	r.e.body = r.b
	return r.e, nil
}

// Body returns the body as the client sent it.
func (e *Envelope) Body() []byte { return e.body }

// CacheSalt returns the client's salt, "" if it gave none.
func (e *Envelope) CacheSalt() (string, error) {
	return fields{"cache_salt": e.Raw("cache_salt")}.cacheSalt()
}

// Raw returns the value of a top-level member, nil if it is absent.
func (e *Envelope) Raw(name string) []byte {
	for _, m := range e.members {
		if m.name == name {
			return e.body[m.value:m.end]
		}
	}
	return nil
}

// ModelName returns the model that the body names, cut to 64 bytes; "" if it names none.
func (e *Envelope) ModelName() string {
	name, _ := decodeString(e.Raw("model"))
	return fmt.Sprintf("%.64s", name)
}

// Request returns what a gateway needs to know of a body without messages.
func (e *Envelope) Request() (*Request, error) {
	top := fields{}
	for _, m := range e.members {
		top[m.name] = e.body[m.value:m.end]
	}
	r := &Request{body: e.body, top: top}
	return r, r.read(top)
}

// envelopeReader fills an Envelope.
type envelopeReader struct {
	scanner
	e        *Envelope
	maxMedia int
	newTap   func() Tap
	top      fields // spans while the body grows
	parts    int
}

func (r *envelopeReader) read() error {
	if r.peek() != '{' {
		if _, err := r.value(); err != nil {
			return err
		}
		return BadRequest("", "The body must be a JSON object.")
	}
	r.e.open = r.i + 1
	if _, err := r.object(r.member); err != nil {
		return err
	}
	r.e.close = r.i - 1
	if err := r.end(); err != nil {
		return err
	}
	var err error
	r.e.Stream, err = r.top.boolean("stream")
	return err
}

// member passes one top-level member.
func (r *envelopeReader) member(key []byte) error {
	m := member{name: string(key), start: r.keyAt}
	for _, other := range r.e.members {
		if other.name == m.name {
			return badParam(Shorten(m.name), "The key `%s` stands twice in one object.", Shorten(m.name))
		}
	}
	if len(r.e.members) >= maxFields {
		return badParam("body", "The body has more than %d fields.", maxFields)
	}
	r.peek()
	m.value = r.i
	var err error
	if m.name == "messages" && r.peek() == '[' {
		_, err = r.array(r.message)
	} else {
		var raw []byte
		raw, err = r.value()
		r.top[m.name] = raw
	}
	m.end = r.i
	r.e.members = append(r.e.members, m)
	return err
}

// message passes one message.
func (r *envelopeReader) message(i int) error {
	if r.peek() != '{' {
		_, err := r.value()
		return err
	}
	seen := false
	_, err := r.object(func(key []byte) error {
		if string(key) != "content" || r.peek() != '[' {
			_, err := r.value()
			return err
		}
		path := indexed("messages", i) + ".content"
		if seen {
			return badParam(path, "The key `content` stands twice in one object.")
		}
		seen = true
		_, err := r.array(func(j int) error { return r.part(path, j) })
		return err
	})
	return err
}
