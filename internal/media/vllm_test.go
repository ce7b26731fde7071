// SPDX-License-Identifier: Apache-2.0

package media

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"afterimage/internal/embedding"
)

// The identifiers were made by vLLM's own hasher from these files.
func TestVLLMIdentifiers(t *testing.T) {
	text, err := os.ReadFile("../embedding/testdata/vllm_identifiers.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Cases []struct {
			Model, Name string
			File        []byte `json:"file_base64"`
			IO          any    `json:"io_config"`
			Identifier  map[string]embedding.Identifier
		}
	}
	if err := json.Unmarshal(text, &golden); err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, c := range golden.Cases {
		if c.File == nil {
			continue // a client's uuid, which names nothing here
		}
		info, err := Inspect(c.File, Limits{})
		if err != nil {
			t.Fatalf("%s: %v", c.Name, err)
		}
		if info.RGB != (c.IO == nil) {
			t.Errorf("%s: RGB is %v", c.Name, info.RGB)
		}
		for hash, want := range c.Identifier {
			if got := (embedding.VLLMNaming{Model: c.Model, Hash: hash}).Identifier(c.File, info.RGB); got != want {
				t.Errorf("%s with %s of %s: %s, want %s", c.Name, hash, c.Model, got, want)
			}
			seen++
		}
	}
	if seen != 40 {
		t.Errorf("%d identifiers, want 40", seen)
	}
}

// The files and their modes are Pillow's, which vLLM decodes with: testdata/modes/modes.py made them.
func TestModesOfPillow(t *testing.T) {
	text, err := os.ReadFile("testdata/modes/modes.json")
	if err != nil {
		t.Fatal(err)
	}
	var modes map[string]string
	if err := json.Unmarshal(text, &modes); err != nil {
		t.Fatal(err)
	}
	for name, mode := range modes {
		data, err := os.ReadFile(filepath.Join("testdata", "modes", name))
		if err != nil {
			t.Fatal(err)
		}
		info, err := Inspect(data, Limits{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if info.RGB != (mode == "RGB") {
			t.Errorf("%s: RGB is %v, its mode is %s", name, info.RGB, mode)
		}
	}
	if len(modes) < 20 {
		t.Errorf("%d files, want at least 20", len(modes))
	}
}
