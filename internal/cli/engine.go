// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"os"
	"strings"

	"afterimage/internal/config"
	"afterimage/internal/embedding"
	"afterimage/internal/engine"
	"afterimage/internal/engine/device"
	"afterimage/internal/engine/llama"
)

// openLibrary loads the native libraries that the configuration names, or those of make deps.
func openLibrary(cfg config.Engine) (*llama.Library, error) {
	dir, err := llama.FindDir(cfg.Dir)
	if err != nil {
		return nil, err
	}
	return llama.Open(dir, llama.GPU(cfg.GPU))
}

// openEncoder loads the engine of an Encoder.
func openEncoder(cfg config.Config) (engine.Encoder, error) {
	if cfg.Engine.Kind == config.EngineDevice {
		profile, err := device.ParseProfile(cfg.Engine.Device)
		if err != nil {
			return nil, err
		}
		return device.NewEncoder(profile.Encoder())
	}
	lib, err := openLibrary(cfg.Engine)
	if err != nil {
		return nil, err
	}
	return llama.NewEncoder(lib, llama.EncoderConfig{
		Model: cfg.Model.Path, MMProj: cfg.Model.MMProj, Threads: cfg.Engine.Threads,
	})
}

// openText loads the engine of a prefill worker.
func openText(cfg config.Config) (engine.Text, error) {
	if cfg.Engine.Kind == config.EngineDevice {
		profile, err := device.ParseProfile(cfg.Engine.Device)
		if err != nil {
			return nil, err
		}
		return device.NewText(profile.Text())
	}
	lib, err := openLibrary(cfg.Engine)
	if err != nil {
		return nil, err
	}
	template, err := chatTemplate(cfg.Model.ChatTemplate)
	if err != nil {
		return nil, err
	}
	return llama.NewText(lib, llama.TextConfig{
		Model: cfg.Model.Path, Template: template, ContextTokens: cfg.Engine.Context, Slots: cfg.Engine.Slots, Threads: cfg.Engine.Threads, GPULayers: cfg.Engine.GPULayers,
	})
}

// maxTemplate bounds a file of a chat template; those of models have a few kilobytes.
const maxTemplate = 1 << 20

// chatTemplate returns what the configuration names: a template of llama.cpp, or the text of a file.
func chatTemplate(named string) (string, error) {
	st, err := os.Stat(named)
	if named == "" || err != nil && !strings.ContainsAny(named, "/.") {
		return named, nil
	}
	if err == nil && st.Size() > maxTemplate {
		err = fmt.Errorf("%d bytes, more than %d", st.Size(), maxTemplate)
	}
	if err != nil {
		return "", fmt.Errorf("model.chat_template: %w", err)
	}
	text, err := os.ReadFile(named)
	return string(text), err
}

// shown is the model's name for people.
func shown(name string, modelled bool) string {
	if modelled && !strings.Contains(name, "modelled") {
		return fmt.Sprintf("%s (modelled device)", name)
	}
	return name
}

// protocol is the format of the objects that workers of this fleet exchange.
const protocol = embedding.A1
