// SPDX-License-Identifier: Apache-2.0

package llama

import (
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
	text  []byte  // with a final NUL
	begin []int32 // the tokens before every prompt
	bos   string  // the text of begin
}

// newTemplate takes the template of the model. The library knows a fixed list of templates by their
// features and has no Jinja; a template that is not on its list is replaced by chatml, with a warning.
func newTemplate(m *textModel) *template {
	t := &template{text: cString(fallbackTemplate)}
	if own := goString(m.lib.c.modelTemplate(m.ptr, nil)); own != "" {
		t.text = cString(own)
		if _, err := t.apply(m.lib, []engine.Message{{Role: "user", Content: "x"}}); err != nil {
			slog.Warn("the model's chat template is none that llama.cpp knows; using chatml", "model", m.name)
			t.text = cString(fallbackTemplate)
		}
	}
	if bos := m.lib.c.vocabBOS(m.vocab); bos >= 0 && m.lib.c.vocabAddBOS(m.vocab) {
		t.begin, t.bos = []int32{bos}, goString(m.lib.c.vocabText(m.vocab, bos))
	}
	return t
}

// render writes a conversation as the model wants it, up to where the assistant's answer begins.
func (t *template) render(lib *Library, msgs []engine.Message) (string, error) {
	if len(msgs) == 0 {
		return "", fmt.Errorf("llama: a prompt needs at least one message")
	}
	for i, m := range msgs {
		// C strings end at a NUL: the rest of the message would be lost without a word.
		if strings.IndexByte(m.Role, 0) >= 0 || strings.IndexByte(m.Content, 0) >= 0 {
			return "", fmt.Errorf("llama: message %d contains a NUL byte", i)
		}
	}
	out, err := t.apply(lib, msgs)
	if err != nil {
		return "", err
	}
	// A few templates write what Begin stands for.
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
