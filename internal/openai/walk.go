// SPDX-License-Identifier: Apache-2.0

package openai

import "bytes"

// walk passes over a chat body and hands its messages and content parts, in order, to whoever reads
// them. It keeps the spans of the other top-level values.
type walk struct {
	scanner
	msg   int  // messages passed
	parts int  // content parts passed
	seen  bool // the key messages
	said  span // its value

	// part is called for each content part; the rawPart is used again after the call. A string
	// content, or a string among the parts, comes as a text part.
	part func(*rawPart) error
	// newTap, if set, makes the tap of each URL.
	newTap func() Tap
	// message, if set, is called after a message's last part.
	message func(*rawMessage) error
}

// rawMessage is a message without its parts.
type rawMessage struct {
	index  int
	role   string
	name   string // "" if absent or null
	plain  bool   // content was one string
	extras fields // members that change the prompt and are read by some only
}

// path returns "messages[i]".
func (m *rawMessage) path() string { return indexed("messages", m.index) }

// body passes the whole body and returns its top-level values, messages excepted.
func (w *walk) body() (fields, error) {
	top, err := w.topLevel()
	if w.broken != nil {
		err = w.broken
	}
	return top, err
}

// topLevel is body, without regard to why it may have ended early.
func (w *walk) topLevel() (fields, error) {
	switch c := w.peek(); {
	case w.i == len(w.b):
		return nil, errField("missing", "", "Field required", "None")
	case c != '{':
		raw, err := w.value()
		if err != nil {
			return nil, err
		}
		if err := w.end(); err != nil {
			return nil, err
		}
		return nil, errField("model_attributes_type", "",
			"Input should be a valid dictionary or object to extract fields from", pyValue(raw))
	}
	top := fields{}
	n, err := w.object(func(key []byte) error { return w.topMember(top, key) })
	if err == nil {
		err = w.end()
	}
	switch {
	case err != nil:
		return nil, err
	case !w.seen:
		return nil, errField("missing", "messages", "Field required", pySize("dict", n))
	case w.msg == 0:
		return nil, BadRequest("", "Cannot apply chat template to an empty conversation. Provide at least one message.")
	}
	return top, nil
}

// maxFields bounds the top-level keys of a body; the API knows about 80.
const maxFields = 512

// topMember passes one top-level member and keeps its span.
func (w *walk) topMember(top fields, key []byte) error {
	if string(key) == "messages" {
		if w.seen {
			return badParam("messages", "The key `messages` stands twice in one object.")
		}
		w.seen = true
		w.peek()
		w.said.start = w.i
		err := w.messages()
		w.said.end = w.i
		return err
	}
	name := string(key)
	if _, twice := top[name]; twice {
		return badParam(Shorten(name), "The key `%s` stands twice in one object.", Shorten(name))
	}
	if len(top) >= maxFields {
		return badParam("body", "The body has more than %d fields.", maxFields)
	}
	raw, err := w.value()
	top[name] = raw
	return err
}

// messages passes the value of messages.
func (w *walk) messages() error {
	if w.peek() != '[' {
		raw, err := w.value()
		if err != nil {
			return err
		}
		return errField("list_type", "messages", "Input should be a valid list", pyValue(raw))
	}
	_, err := w.array(func(i int) error {
		if i >= maxMessages {
			return badParam("messages", "At most %d messages may be sent in one request.", maxMessages)
		}
		w.msg = i + 1
		return w.oneMessage(&rawMessage{index: i})
	})
	return err
}

// The members of a message that may stand only once.
const (
	bitRole = iota
	bitContent
	bitName
)

// oneMessage passes a message. Its parts are handed on before its role may be known.
func (w *walk) oneMessage(m *rawMessage) error {
	if w.peek() != '{' {
		raw, err := w.value()
		if err != nil {
			return err
		}
		return badParam(m.path(), "%s must be an object, got %s.", m.path(), jsonKind(raw))
	}
	var seen uint
	hasContent := false
	_, err := w.object(func(key []byte) (err error) {
		switch string(key) {
		case "role":
			if err = once(&seen, bitRole, m.path(), "role"); err == nil {
				m.role, err = w.stringAt(m.path()+".role", false)
			}
		case "name":
			if err = once(&seen, bitName, m.path(), "name"); err == nil {
				m.name, err = w.stringAt(m.path()+".name", true)
			}
		case "content":
			if err = once(&seen, bitContent, m.path(), "content"); err == nil {
				hasContent, err = w.content(m)
			}
		default:
			err = w.messageExtra(m, key)
		}
		return err
	})
	if err != nil {
		return err
	}
	if err := m.check(hasContent); err != nil || w.message == nil {
		return err
	}
	return w.message(m)
}

// check is for what needs the whole message.
func (m *rawMessage) check(hasContent bool) error {
	if m.role == "" {
		return badParam(m.path()+".role", "%s.role is required and must not be empty.", m.path())
	}
	if !hasContent && m.role != "assistant" {
		return badParam(m.path()+".content", "%s.content is required in a message of role %q and must not be null.",
			m.path(), Shorten(m.role))
	}
	return nil
}

// messageExtra passes a member that is not read here. Pictures in the manner of other APIs are
// refused, because ignoring them would drop them.
func (w *walk) messageExtra(m *rawMessage, key []byte) error {
	name := Shorten(string(key))
	raw, err := w.value()
	if err != nil || raw[0] == 'n' {
		return err
	}
	switch name {
	case "images", "image", "image_url":
		return badParam(join(m.path(), name), "%s.%s is not understood: send images as content parts of type image_url.", m.path(), name)
	case "tool_calls", "function_call":
		if m.extras == nil {
			m.extras = fields{}
		}
		m.extras[name] = raw
	}
	return nil
}

// content passes a string, a list of parts or null; it returns whether there was content.
func (w *walk) content(m *rawMessage) (bool, error) {
	switch w.peek() {
	case '"':
		m.plain = true
		return true, w.stringPart(m, 0)
	case '[':
		path := m.path() + ".content"
		n, err := w.array(func(i int) error { return w.onePart(m, i) })
		if err == nil && n == 0 {
			err = badParam(path, "%s must hold at least one part.", path)
		}
		return true, err
	}
	raw, err := w.value()
	if err != nil || raw[0] == 'n' {
		return false, err
	}
	path := m.path() + ".content"
	return false, badParam(path, "%s must be a string or a list of parts, got %s.", path, jsonKind(raw))
}

// stringAt passes a string that stands at path; null is "" if optional.
func (w *walk) stringAt(path string, optional bool) (string, error) {
	if w.peek() == '"' {
		t, err := w.str()
		return string(t.bytes()), err
	}
	raw, err := w.value()
	if err != nil || optional && bytes.Equal(raw, []byte("null")) {
		return "", err
	}
	return "", badParam(path, "%s must be a string, got %s.", path, jsonKind(raw))
}
