// SPDX-License-Identifier: Apache-2.0

package llama

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// EnvDir names the environment variable that points at the folder of the libraries.
const EnvDir = "AFTERIMAGE_ENGINE_DIR"

// release is the version of the package that `make deps` unpacks.
const release = "0.2.0"

// The libraries, by their names in the folder.
const (
	libLlama = "libllama.so.0"
	libMtmd  = "libmtmd.so.0"
	libCPU   = "libggml-cpu.so"
)

// machine is the name of the architecture that folder names carry.
func machine() string {
	switch runtime.GOARCH {
	case "amd64":
		return "x86_64"
	case "arm64":
		return "aarch64"
	}
	return runtime.GOARCH
}

// FindDir returns the folder of the native libraries. A folder named by the caller or by EnvDir is
// final: when it does not hold them, no other is tried. Otherwise the first of these wins:
// .cache/engine below the working directory, below the folder of the executable and its parent, and
// afterimage/engine in the user's cache. The error lists all that was looked at.
func FindDir(explicit string) (string, error) {
	for _, named := range []struct{ by, dir string }{{"the engine folder", explicit}, {EnvDir, os.Getenv(EnvDir)}} {
		if named.dir == "" {
			continue
		}
		if !holdsLibraries(named.dir) {
			return "", fmt.Errorf("llama: %s %s holds no %s; run `make deps`, or name the folder that it made", named.by, named.dir, libLlama)
		}
		return named.dir, nil
	}
	places := standardDirs()
	for _, dir := range places {
		if holdsLibraries(dir) {
			return dir, nil
		}
	}
	return "", fmt.Errorf("llama: the native libraries are missing; run `make deps`, or set %s to their folder. Looked in:\n  %s",
		EnvDir, strings.Join(places, "\n  "))
}

// standardDirs lists the folders that are searched when none is named, without duplicates.
func standardDirs() []string {
	var caches []string
	if wd, err := os.Getwd(); err == nil {
		caches = append(caches, filepath.Join(wd, ".cache"))
	}
	if exe, err := os.Executable(); err == nil {
		if real, err := filepath.EvalSymlinks(exe); err == nil {
			exe = real
		}
		bin := filepath.Dir(exe)
		caches = append(caches, filepath.Join(filepath.Dir(bin), ".cache"), filepath.Join(bin, ".cache"))
	}
	if user, err := os.UserCacheDir(); err == nil {
		caches = append(caches, filepath.Join(user, "afterimage"))
	}
	var dirs []string
	seen := map[string]bool{}
	for _, c := range caches {
		dir := filepath.Join(c, "engine", release+"-"+machine())
		if !seen[dir] {
			seen[dir] = true
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

func holdsLibraries(dir string) bool {
	st, err := os.Stat(filepath.Join(dir, libLlama))
	return err == nil && st.Mode().IsRegular()
}

// errNoLibrary is what a missing file of an otherwise good folder is reported as.
func errNoLibrary(dir, name string, err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("llama: %s holds no %s; run `make deps`", dir, name)
	}
	return fmt.Errorf("llama: %s: %w", filepath.Join(dir, name), err)
}
