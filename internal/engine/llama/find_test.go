// SPDX-License-Identifier: Apache-2.0

package llama

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// wantError checks that err says all of parts.
func wantError(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error, want one with %q", parts)
		return
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("error %q does not say %q", err, p)
		}
	}
}

// fakeLibrary makes a folder that looks like one with the libraries.
func fakeLibrary(t *testing.T, dir string) string {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{libLlama, libMtmd, libCPU} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("not a library"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestFindDir(t *testing.T) {
	wd, home, empty := t.TempDir(), t.TempDir(), t.TempDir()
	t.Chdir(wd)
	t.Setenv("XDG_CACHE_HOME", home)
	t.Setenv(EnvDir, "")
	f := func(explicit, want string) {
		t.Helper()
		got, err := FindDir(explicit)
		if err != nil || got != want {
			t.Errorf("FindDir(%q) = %q, %v; want %q", explicit, got, err, want)
		}
	}
	_, err := FindDir("")
	wantError(t, err, "make deps", EnvDir, wd, home, filepath.Join("engine", release+"-"+machine()))

	user := fakeLibrary(t, filepath.Join(home, "afterimage", "engine", release+"-"+machine()))
	f("", user)
	local := fakeLibrary(t, filepath.Join(wd, ".cache", "engine", release+"-"+machine()))
	f("", local)
	env := fakeLibrary(t, filepath.Join(t.TempDir(), "env"))
	t.Setenv(EnvDir, env)
	f("", env)
	flag := fakeLibrary(t, filepath.Join(t.TempDir(), "flag"))
	f(flag, flag)

	// A folder that was named is never passed over in silence.
	_, err = FindDir(empty)
	wantError(t, err, empty, libLlama, "make deps")
	t.Setenv(EnvDir, empty)
	_, err = FindDir("")
	wantError(t, err, EnvDir, empty, "make deps")
}

func TestCheckCPU(t *testing.T) {
	if err := checkCPU([]cpuFeature{{"AVX2", true}, {"FMA", true}}); err != nil {
		t.Error(err)
	}
	wantError(t, checkCPU([]cpuFeature{{"AVX2", false}, {"FMA", true}, {"BMI2", false}}), "AVX2, BMI2", "device")
}

func TestLoadRefusesWhatIsNoLibrary(t *testing.T) {
	_, err := load(filepath.Join(t.TempDir(), "nothing"), GPUOff)
	wantError(t, err, "nothing", "make deps")

	dir := fakeLibrary(t, t.TempDir())
	_, err = load(dir, GPUOff)
	wantError(t, err, filepath.Join(dir, libLlama), "make deps")

	if err := os.Remove(filepath.Join(dir, libMtmd)); err != nil {
		t.Fatal(err)
	}
	_, err = load(dir, GPUOff)
	wantError(t, err, dir, libMtmd, "make deps")
}

func TestOpenLoadsOnce(t *testing.T) {
	lib := library(t)
	again, err := Open(lib.Dir()+"/.", GPUOff)
	if err != nil || again != lib {
		t.Errorf("the same folder again: %p, %v; want %p", again, err, lib)
	}
	other := fakeLibrary(t, t.TempDir())
	_, err = Open(other, GPUOff)
	wantError(t, err, lib.Dir(), other)
}

// TestWrongLibraries starts processes on folders in which one library is another one.
func TestWrongLibraries(t *testing.T) {
	real, err := libraryDir()
	if err != nil {
		t.Fatal(err)
	}
	f := func(change func(dir string), parts ...string) {
		t.Helper()
		dir := t.TempDir()
		linkLibraries(t, real, dir)
		change(dir)
		cmd := side(t, "encode", "", "")
		cmd.Env = append(cmd.Env, EnvDir+"="+dir)
		if err := cmd.Run(); err == nil {
			t.Error("the process accepted its libraries")
		}
		wantError(t, fmt.Errorf("%s", cmd.Stderr), append(parts, dir)...)
	}
	replace := func(name, by string) func(string) {
		return func(dir string) {
			if err := os.Rename(filepath.Join(dir, by), filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	f(replace(libLlama, "libgomp.so.1"), "lacks llama_version", "make deps") // loads, and is something else
	f(replace(libLlama, libMtmd), "no "+libMtmd, "make deps")
	f(func(dir string) { writeFile(t, dir, libCPU) }, libCPU, "did not load")              // no back end
	f(func(dir string) { writeFile(t, dir, libMtmd) }, libMtmd, "cannot load")             // no projector library
	f(func(dir string) { writeFile(t, dir, "libggml.so.0") }, "libggml.so.0", "make deps") // junk below
	f(func(dir string) { os.Remove(filepath.Join(dir, libLlama)) }, libLlama, "make deps") // half a folder
}

// linkLibraries fills dir with links to the files of from.
func linkLibraries(t *testing.T, from, dir string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(from, "*.so*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if err := os.Symlink(f, filepath.Join(dir, filepath.Base(f))); err != nil {
			t.Fatal(err)
		}
	}
}

func writeFile(t *testing.T, dir, name string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) { // it may be a link
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("junk"), 0o644); err != nil {
		t.Fatal(err)
	}
}
