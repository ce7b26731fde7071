// SPDX-License-Identifier: Apache-2.0

package openai

import "strconv"

// The types of content parts that are told apart.
const (
	kindText  = "text"
	kindImage = "image_url"
	kindItem  = "afterimage_item" // control.ItemPartType, which layer 0 cannot import
)

// imageState says what stood under image_url.
type imageState uint8

const (
	absent    imageState = iota // nothing, or null
	notObject                   // not an object; image.got says what
	object                      // an object
)

// rawPart is one content part as it stands in the body.
type rawPart struct {
	message, index int
	start, end     int // span in the body

	kind string // "" if the part has no type
	text text
	// textGot and urlGot are what stood in the place of a string: "" for a string.
	textGot, urlGot string

	image    imageState
	imageGot string // with notObject
	url      text   // with object
	tap      Tap    // has seen url

	uuid  string
	item  []byte // the number under index
	plain bool   // a string, not an object
}

// path returns "messages[i].content[j]".
func (p *rawPart) path() string {
	return indexed(indexed("messages", p.message)+".content", p.index)
}

// indexed appends an index to a JSON path.
func indexed(name string, i int) string { return name + "[" + strconv.Itoa(i) + "]" }

// stringPart passes a string that stands for a text part.
func (w *walk) stringPart(m *rawMessage, i int) error {
	if err := w.countPart(); err != nil {
		return err
	}
	t, err := w.str()
	if err != nil {
		return err
	}
	return w.part(&rawPart{message: m.index, index: i, kind: kindText, text: t, plain: true})
}

// countPart holds the number of parts to its limit.
func (w *walk) countPart() error {
	if w.parts++; w.parts > maxParts {
		return badParam("messages", "At most %d content parts may be sent in one request.", maxParts)
	}
	return nil
}

// The members of a part, and of its image_url, that may stand only once.
const (
	bitType = iota
	bitText
	bitImage
	bitUUID
	bitIndex
	bitURL
)

// onePart passes an element of a content list and hands it on.
func (w *walk) onePart(m *rawMessage, i int) error {
	p := &rawPart{message: m.index, index: i, textGot: "nothing"}
	switch w.peek() {
	case '"':
		return w.stringPart(m, i)
	case '{':
	default:
		raw, err := w.value()
		if err != nil {
			return err
		}
		return badParam(p.path(), "%s must be an object, got %s.", p.path(), jsonKind(raw))
	}
	if err := w.countPart(); err != nil {
		return err
	}
	p.start = w.i
	var seen uint
	if _, err := w.object(func(key []byte) error { return w.partMember(p, &seen, key) }); err != nil {
		return err
	}
	p.end = w.i
	return w.part(p)
}

// partMember passes one member of a part. Which members must be there depends on the type, which may
// come last, so that only their own form is checked here.
func (w *walk) partMember(p *rawPart, seen *uint, key []byte) (err error) {
	bit := uint(bitType)
	switch string(key) {
	case "type":
	case "text":
		bit = bitText
	case "image_url":
		bit = bitImage
	case "uuid":
		bit = bitUUID
	case "index":
		bit = bitIndex
	case "image", "images":
		return w.stray(p, key)
	default:
		_, err = w.value()
		return err
	}
	if err := once(seen, bit, p.path(), string(key)); err != nil {
		return err
	}
	switch bit {
	case bitType:
		p.kind, err = w.stringAt(p.path()+".type", false)
	case bitText:
		p.text, p.textGot, err = w.stringOr()
	case bitImage:
		err = w.image(p)
	case bitUUID:
		p.uuid, err = w.stringAt(p.path()+".uuid", true)
		if len(p.uuid) > maxUUIDBytes {
			return badParam(p.path()+".uuid", "%s.uuid has %d bytes; at most %d are allowed.", p.path(), len(p.uuid), maxUUIDBytes)
		}
	case bitIndex:
		p.item, err = w.value()
	}
	return err
}

// stray passes a picture in the manner of other APIs, which would otherwise be dropped.
func (w *walk) stray(p *rawPart, key []byte) error {
	raw, err := w.value()
	if err != nil || raw[0] == 'n' {
		return err
	}
	return badParam(p.path()+"."+string(key), "%s.%s is not understood: send images as parts of type image_url.", p.path(), key)
}

// image passes the value of image_url.
func (w *walk) image(p *rawPart) error {
	if w.peek() != '{' {
		raw, err := w.value()
		if err == nil && raw[0] != 'n' {
			p.image, p.imageGot = notObject, jsonKind(raw)
		}
		return err
	}
	p.image, p.urlGot = object, "nothing"
	var seen uint
	_, err := w.object(func(key []byte) (err error) {
		if string(key) != "url" {
			_, err = w.value()
			return err
		}
		if err := once(&seen, bitURL, p.path()+".image_url", "url"); err != nil {
			return err
		}
		if w.newTap != nil {
			p.tap = w.newTap()
			w.tap = p.tap
		}
		p.url, p.urlGot, err = w.stringOr()
		w.tap = nil
		return err
	})
	return err
}

// stringOr passes any value; got names it if it is no string.
func (w *walk) stringOr() (t text, got string, err error) {
	if w.peek() == '"' {
		t, err = w.str()
		return t, "", err
	}
	raw, err := w.value()
	if err != nil {
		return t, "", err
	}
	return t, jsonKind(raw), nil
}

// jsonKind names a checked JSON value for an error.
func jsonKind(raw []byte) string {
	switch raw[0] {
	case '{':
		return "an object"
	case '[':
		return "a list"
	case '"':
		return "a string"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	}
	return "a number"
}
