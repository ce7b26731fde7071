// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"afterimage/internal/config"
	"afterimage/internal/model"
)

// demoDir is the folder of the demo pair in a cache.
const demoDir = "models/demo"

// smolFolder is the folder of the demo's text model in a cache, as `make deps` makes it.
const smolFolder = "models/smollm2-135m"

// caches lists the folders in which `make deps` and this program keep what they made, nearest first:
// that of the working directory, of the program, and the user's.
func caches() []string {
	var out []string
	add := func(dir string) {
		if !slices.Contains(out, dir) {
			out = append(out, dir)
		}
	}
	if wd, err := os.Getwd(); err == nil {
		add(filepath.Join(wd, ".cache"))
	}
	if exe, err := os.Executable(); err == nil {
		if real, err := filepath.EvalSymlinks(exe); err == nil {
			exe = real
		}
		bin := filepath.Dir(exe)
		add(filepath.Join(filepath.Dir(bin), ".cache"))
		add(filepath.Join(bin, ".cache"))
	}
	if user, err := os.UserCacheDir(); err == nil {
		add(filepath.Join(user, "afterimage"))
	}
	return out
}

// findSmolLM2 returns the path of the demo's text model. Callers add to its error what the user can do.
func findSmolLM2(caches []string) (string, error) {
	for _, c := range caches {
		found, err := filepath.Glob(filepath.Join(c, smolFolder, "*.gguf"))
		if err == nil && len(found) > 0 {
			return found[0], nil
		}
	}
	return "", fmt.Errorf("the demo's text model SmolLM2-135M is missing. Looked in:\n%s", strings.Join(caches, "\n"))
}

// findDemo returns the paths of the demo pair. It makes the pair if no cache has it yet.
func findDemo(caches []string) (text, projector string, err error) {
	for _, c := range caches {
		if dir := filepath.Join(c, demoDir); pairIn(dir) {
			return filepath.Join(dir, model.TextFile), filepath.Join(dir, model.ProjectorFile), nil
		}
	}
	smol, err := findSmolLM2(caches)
	if err != nil {
		return "", "", fmt.Errorf("no model is named: run 'make deps' for the demo, or name a pair with --model and --mmproj; %w", err)
	}
	dir := filepath.Join(filepath.Dir(filepath.Dir(filepath.Dir(smol))), demoDir)
	if err := model.WriteDemo(dir, smol); err != nil {
		return "", "", err
	}
	return filepath.Join(dir, model.TextFile), filepath.Join(dir, model.ProjectorFile), nil
}

// demoName is what the demo model is called where the user gives no name.
const demoName = "afterimage-demo"

// modelOf returns the model of a role that runs engine kind: the one named, or else the demo.
func modelOf(m config.Model, kind string, caches []string) (config.Model, error) {
	if m.Path != "" || kind == config.EngineDevice {
		return m, nil
	}
	var err error
	if m.Path, m.MMProj, err = findDemo(caches); err != nil {
		return m, err
	}
	m.Name, m.ChatTemplate = cmp.Or(m.Name, demoName), cmp.Or(m.ChatTemplate, model.ChatTemplate)
	return m, nil
}

// pairIn says whether dir holds a pair.
func pairIn(dir string) bool {
	for _, name := range []string{model.TextFile, model.ProjectorFile} {
		if st, err := os.Stat(filepath.Join(dir, name)); err != nil || !st.Mode().IsRegular() {
			return false
		}
	}
	return true
}
