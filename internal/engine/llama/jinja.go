// SPDX-License-Identifier: Apache-2.0

package llama

import (
	"errors"
	"fmt"

	"github.com/ardanlabs/jinja"

	"afterimage/internal/engine"
)

// jinjaTemplate is the chat template of a model file, compiled. Rendering may run in several goroutines.
type jinjaTemplate struct {
	compiled *jinja.Template
	bos, eos string
}

// newJinja compiles a template. The engine has no way to other files or to the network.
func newJinja(source, bos, eos string) (j *jinjaTemplate, err error) {
	defer func() { err = errors.Join(err, caught(recover())) }()
	c, err := jinja.Compile(source)
	if err != nil {
		return nil, fmt.Errorf("llama: chat template: %w", err)
	}
	return &jinjaTemplate{compiled: c, bos: bos, eos: eos}, nil
}

// render writes a conversation up to where the assistant's answer begins.
func (j *jinjaTemplate) render(msgs []engine.Message) (text string, err error) {
	defer func() { err = errors.Join(err, caught(recover())) }()
	list := make([]any, len(msgs))
	for i, m := range msgs {
		list[i] = map[string]any{"role": m.Role, "content": m.Content}
	}
	text, err = j.compiled.Render(map[string]any{
		"messages": list, "add_generation_prompt": true, "bos_token": j.bos, "eos_token": j.eos,
	})
	if err != nil {
		return "", fmt.Errorf("llama: the chat template cannot render this conversation: %w", err)
	}
	return text, nil
}

// caught turns a panic into an error: a template is data, and must not end the process.
func caught(r any) error {
	if r == nil {
		return nil
	}
	return fmt.Errorf("llama: the chat template cannot be run: %v", r)
}
