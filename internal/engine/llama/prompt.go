// SPDX-License-Identifier: Apache-2.0

package llama

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"unsafe"

	"afterimage/internal/engine"
)

// fallbackTemplate is the template of models that bring none, by its name in the library.
const fallbackTemplate = "chatml"

// template is the chat template of a text model.
type template struct {
	jinja *jinjaTemplate // nil: the library renders text
	text  []byte         // with a final NUL
	begin []int32        // the tokens before every prompt
	bos   string         // the text of begin
}

// newTemplate takes the template that is given, or else the model's own: as Jinja; if that cannot be run,
// as one that the library knows by its name or features. A model's own that is neither is replaced by
// chatml, with a warning; one that is given is an error.
func newTemplate(m *textModel, given string) (*template, error) {
	t := &template{text: cString(fallbackTemplate)}
	c := &m.lib.c
	special := func(tok int32) string {
		if tok < 0 {
			return ""
		}
		return goString(c.vocabText(m.vocab, tok))
	}
	bos := c.vocabBOS(m.vocab)
	if bos >= 0 && c.vocabAddBOS(m.vocab) {
		t.begin, t.bos = []int32{bos}, special(bos)
	}
	source := cmp.Or(given, goString(c.modelTemplate(m.ptr, nil)))
	if source == "" {
		return t, nil
	}
	var err error
	if strings.Contains(source, "{") { // else it is a name
		if t.jinja, err = runnable(source, special(bos), special(c.vocabEOS(m.vocab))); err == nil {
			return t, nil
		}
	}
	t.text = cString(source)
	if _, unknown := t.apply(m.lib, shortest); unknown != nil {
		err, t.text = errors.Join(err, unknown), cString(fallbackTemplate)
		if given != "" {
			return nil, fmt.Errorf("llama: the chat template %.60q can neither be run nor is it one of llama.cpp's: %w", given, err)
		}
		slog.Warn("the model's chat template cannot be run and is none that llama.cpp knows; using chatml", "model", m.name, "err", err)
	} else if err != nil {
		slog.Warn("the model's chat template cannot be run; using the one of llama.cpp that is like it", "model", m.name, "err", err)
	}
	return t, nil
}

// shortest is a conversation that every template can write.
var shortest = []engine.Message{{Role: "user", Content: "x"}}

// runnable returns a Jinja template that has run once.
func runnable(source, bos, eos string) (*jinjaTemplate, error) {
	j, err := newJinja(source, bos, eos)
	if err != nil {
		return nil, err
	}
	if _, err := j.render(shortest); err != nil {
		return nil, err
	}
	return j, nil
}

// render writes a conversation as the model wants it, up to where the assistant's answer begins.
func (t *template) render(lib *Library, msgs []engine.Message) (out string, err error) {
	if len(msgs) == 0 {
		return "", fmt.Errorf("llama: a prompt needs at least one message")
	}
	for i, m := range msgs {
		// C strings end at a NUL: the rest of the message would be lost without a word.
		if strings.IndexByte(m.Role, 0) >= 0 || strings.IndexByte(m.Content, 0) >= 0 {
			return "", fmt.Errorf("llama: message %d contains a NUL byte", i)
		}
	}
	if t.jinja != nil {
		out, err = t.jinja.render(msgs)
	} else {
		out, err = t.apply(lib, msgs)
	}
	if err != nil {
		return "", err
	}
	// Many templates write what Begin stands for.
	return strings.TrimPrefix(out, t.bos), nil
}

func (t *template) apply(lib *Library, msgs []engine.Message) (string, error) {
	// The array holds pointers to Go memory, which native code may only follow while they are pinned.
	var pin runtime.Pinner
	defer pin.Unpin()
	room := 256
	c := make([]cMessage, len(msgs))
	for i, m := range msgs {
		role, content := cString(m.Role), cString(m.Content)
		c[i] = cMessage{role: &role[0], content: &content[0]}
		pin.Pin(c[i].role)
		pin.Pin(c[i].content)
		room += len(role) + len(content) + 64
	}
	for {
		if room > maxText {
			return "", fmt.Errorf("llama: a conversation of %d bytes exceeds %d", room, maxText)
		}
		buf := make([]byte, room)
		n := int(lib.c.applyTemplate(&t.text[0], unsafe.SliceData(c), uint64(len(c)), true, &buf[0], int32(len(buf))))
		switch {
		case n < 0:
			return "", fmt.Errorf("llama: the chat template cannot render this conversation (code %d)", n)
		case n <= len(buf):
			return string(buf[:n]), nil
		}
		room = n
	}
}
