// SPDX-License-Identifier: Apache-2.0

//go:build gpu

package llama

import (
	"context"
	"encoding/gob"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"afterimage/internal/model"
)

// lavapipe returns the environment of a process that finds the driver in software of make deps-gpu, and no other.
func lavapipe(t *testing.T) []string {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", "..", "..", ".cache", "gpu"))
	if err != nil {
		t.Fatal(err)
	}
	found, err := filepath.Glob(filepath.Join(root, "usr", "lib", "*", "libvulkan_lvp.so"))
	if err != nil || len(found) != 1 {
		t.Fatalf("no driver in %s (%v, %v): run make deps-gpu", root, found, err)
	}
	manifest := filepath.Join(t.TempDir(), "lavapipe.json")
	text := fmt.Sprintf(`{"file_format_version":"1.0.0","ICD":{"library_path":%q,"api_version":"1.3.0"}}`, found[0])
	if err := os.WriteFile(manifest, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return []string{"LD_LIBRARY_PATH=" + filepath.Dir(found[0]), "VK_ICD_FILENAMES=" + manifest, "VK_DRIVER_FILES=" + manifest}
}

// vulkanSide is side on lavapipe.
func vulkanSide(t *testing.T, gpu GPU, name, text, projector string) *exec.Cmd {
	t.Helper()
	cmd := side(t, name, text, projector)
	cmd.Env = append(append(cmd.Env, lavapipe(t)...), envGPU+"="+string(gpu))
	return cmd
}

// TestVulkanSplitEqualsWhole is TestSplitEqualsWhole with all of both models on a Vulkan device. Pieces of prompts
// are those of the whole, as the sums of a GPU hang on how a prompt is cut.
func TestVulkanSplitEqualsWhole(t *testing.T) {
	equal := 0
	for _, projector := range model.Projectors() {
		p := randomPair(t, projector)
		var want, got []result
		decode(t, vulkanSide(t, GPUVulkan, "whole", p.text, p.projector), &want)
		enc := vulkanSide(t, GPUVulkan, "encode", p.text, p.projector)
		txt := vulkanSide(t, GPUVulkan, "text", p.text, "")
		pipe(t, enc, txt)
		decode(t, txt, &got)
		if err := enc.Wait(); err != nil {
			t.Fatalf("%s: encode side: %v\n%s", projector, err, enc.Stderr)
		}
		for i, s := range gpuSizes {
			if !slices.Equal(got[i].Tokens, want[i].Tokens) || !slices.EqualFunc(got[i].Logits, want[i].Logits, slices.Equal[[]uint32]) {
				t.Errorf("%s, %dx%d: split gives tokens %v, whole %v; logits differ from step %d on",
					projector, s.width, s.height, got[i].Tokens, want[i].Tokens, firstDifference(got[i], want[i]))
				continue
			}
			equal++
		}
	}
	t.Logf("%d of %d identical in tokens and logits", equal, len(model.Projectors())*len(gpuSizes))
}

// rows are what an Encoder made, and as whom.
type rows struct {
	Engine, Fingerprint, Backend, Why string
	Values                            [][]float32
}

// TestVulkanRowsAreNearThoseOfTheCPU: other bits under another name, and nearly the same directions.
func TestVulkanRowsAreNearThoseOfTheCPU(t *testing.T) {
	for _, projector := range model.Projectors() {
		p := randomPair(t, projector)
		var cpu, gpu rows
		decode(t, vulkanSide(t, GPUOff, "rows", p.text, p.projector), &cpu)
		decode(t, vulkanSide(t, GPUVulkan, "rows", p.text, p.projector), &gpu)
		if cpu.Engine == gpu.Engine || cpu.Fingerprint == gpu.Fingerprint {
			t.Errorf("%s: CPU and Vulkan have one name: %s, %s", projector, cpu.Engine, cpu.Fingerprint)
		}
		if !strings.Contains(gpu.Backend, "llvmpipe") || !strings.Contains(gpu.Why, "software") {
			t.Errorf("%s: got %q (%s), want a driver in software, and the warning", projector, gpu.Backend, gpu.Why)
		}
		for i, s := range gpuSizes {
			if c := cosine(cpu.Values[i], gpu.Values[i]); !(c > 0.9999) {
				t.Errorf("%s, %dx%d: cosine %v", projector, s.width, s.height, c)
			}
		}
	}
}

// TestAutoTakesNoDriverInSoftware: with the loader and such a driver there, auto is the CPU, under its name.
func TestAutoTakesNoDriverInSoftware(t *testing.T) {
	p := randomPair(t, model.Projectors()[0])
	var off, auto rows
	decode(t, vulkanSide(t, GPUOff, "rows", p.text, p.projector), &off)
	for _, env := range []string{"", envVulkanDevices + "=0"} { // the user may have shown it to all
		cmd := vulkanSide(t, GPUAuto, "rows", p.text, p.projector)
		if env != "" {
			cmd.Env = append(cmd.Env, env)
		}
		decode(t, cmd, &auto)
		if auto.Backend != "cpu" || auto.Engine != off.Engine || auto.Fingerprint != off.Fingerprint {
			t.Errorf("%q: auto is %q as %s, want the CPU as %s", env, auto.Backend, auto.Engine, off.Engine)
		}
		if !slices.EqualFunc(auto.Values, off.Values, slices.Equal[[]float32]) {
			t.Errorf("%q: rows are not those of the CPU", env)
		}
		if !strings.Contains(auto.Why, "vulkan: ") {
			t.Errorf("%q: auto does not say why: %q", env, auto.Why)
		}
	}
}

func cosine(a, b []float32) float64 {
	var ab, aa, bb float64
	for i := range a {
		x, y := float64(a[i]), float64(b[i])
		ab, aa, bb = ab+x*y, aa+x*x, bb+y*y
	}
	return ab / math.Sqrt(aa*bb)
}

func init() { sides["rows"] = rowsSide }

// rowsSide writes what an Encoder makes of the pictures.
func rowsSide(lib *Library, text, projector string) error {
	e, err := NewEncoder(lib, EncoderConfig{Model: text, MMProj: projector})
	if err != nil {
		return err
	}
	defer e.Close()
	spec := e.Spec()
	out := rows{Engine: spec.Engine, Fingerprint: spec.Fingerprint, Backend: spec.Backend.String(), Why: spec.Backend.Why}
	for _, s := range gpuSizes {
		layout, err := e.Layout(context.Background(), s.width, s.height)
		if err != nil {
			return err
		}
		values := make([]float32, layout.Rows()*spec.Cols)
		if err := e.Encode(context.Background(), picture(s), unsafe.Slice((*byte)(unsafe.Pointer(&values[0])), 4*len(values))); err != nil {
			return err
		}
		out.Values = append(out.Values, values)
	}
	return gob.NewEncoder(os.Stdout).Encode(out)
}
