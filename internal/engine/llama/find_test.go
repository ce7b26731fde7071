// SPDX-License-Identifier: Apache-2.0

package llama

import (
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

func TestOpenRefusesWhatIsNoLibrary(t *testing.T) {
	_, err := Open(filepath.Join(t.TempDir(), "nothing"))
	wantError(t, err, "nothing", "make deps")

	dir := fakeLibrary(t, t.TempDir())
	_, err = Open(dir)
	wantError(t, err, filepath.Join(dir, libLlama), "make deps")

	if err := os.Remove(filepath.Join(dir, libMtmd)); err != nil {
		t.Fatal(err)
	}
	_, err = Open(dir)
	wantError(t, err, dir, libMtmd, "make deps")
}
