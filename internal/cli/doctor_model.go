// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"fmt"
	"path/filepath"

	"afterimage/internal/config"
	"afterimage/internal/engine/llama"
	"afterimage/internal/gguf"
	"afterimage/internal/store/mooncake"
)

// checkEngine loads the native libraries.
func checkEngine(cfg config.Engine) []finding {
	err := llama.CheckCPU()
	found := []finding{verdict("cpu", "has what the native libraries need", err, mooncake.Fail, "")}
	if err != nil {
		return found // they must not be loaded
	}
	lib, err := openLibrary(cfg)
	text := ""
	if err == nil {
		text = fmt.Sprintf("%s in %s", lib.Identity(), lib.Dir())
	}
	found = append(found, verdict("engine", text, err, mooncake.Fail, ""))
	if err != nil {
		return found
	}
	gpu := finding{Level: mooncake.Fine, Part: "gpu", Text: fmt.Sprintf("%s: %s", lib.Backend(), lib.Backend().Why)}
	if lib.Backend().Software {
		gpu.Level, gpu.Mend = mooncake.Warn, "install the driver of a GPU, or set engine.gpu to "+string(llama.GPUOff)
	}
	return append(found, gpu)
}

// checkModels reads the headers of the model files that are named, and whether they belong together, or looks for the
// demo's. A P/D has no projector.
func checkModels(m config.Model, caches []string) []finding {
	if m.Path == "" {
		smol, err := findSmolLM2(caches)
		return []finding{verdict("model", "the demo, made of "+smol, err, mooncake.Fail, "run 'make deps', or name a pair in model.path and model.mmproj")}
	}
	var found []finding
	var files []*gguf.File
	for _, path := range []string{m.Path, m.MMProj} {
		if path == "" {
			continue
		}
		f, err := gguf.Open(path)
		text := path
		if err == nil {
			text = fmt.Sprintf("%s: %d tensors", filepath.Base(path), len(f.Tensors()))
			files = append(files, f)
		}
		found = append(found, verdict("model", text, err, mooncake.Fail, "fetch or make the file again"))
	}
	if len(files) == 2 {
		found = append(found, checkPair(files[0], files[1]))
	}
	return found
}

// checkPair compares the width of what the projector makes with that of what the text model takes.
func checkPair(text, projector *gguf.File) finding {
	arch, _ := text.String("general.architecture")
	takes, known := text.Uint(arch + ".embedding_length")
	makes, told := projector.Uint("clip.vision.projection_dim")
	var err error
	if known && told && (takes == 0 || makes%takes != 0) { // some projectors make several layers of it
		err = fmt.Errorf("the projector makes embeddings of %d numbers, the text model takes %d", makes, takes)
	}
	said := fmt.Sprintf("the pair belongs together: %d numbers a row", cmp.Or(takes, makes))
	if !known || !told {
		said = "the files do not tell whether they belong together"
	}
	return verdict("model", said, err, mooncake.Fail, "name the projector that was made for this text model in model.mmproj")
}
