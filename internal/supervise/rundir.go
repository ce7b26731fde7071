// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// runDirPrefix names run directories. A directory of another name is never removed.
const runDirPrefix = "afterimage-up-"

// maxBase bounds the path above a run directory: Linux takes 107 bytes for the path of a socket, of
// which the directory's own name takes up to 25 and the socket's, with slashes, the rest.
const maxBase = 107 - 25 - 32

// MakeRunDir makes the private directory of a run, for sockets and the children's configuration. It
// lies below $XDG_RUNTIME_DIR if that is set, else below the directory for temporary files, or in /tmp
// when that has too long a path for sockets. Only this user can look into it.
func MakeRunDir() (string, error) {
	base := os.Getenv("XDG_RUNTIME_DIR")
	if st, err := os.Stat(base); base == "" || err != nil || !st.IsDir() {
		base = os.TempDir()
	}
	base, err := filepath.Abs(base)
	if err == nil && len(base) > maxBase {
		base = "/tmp"
	}
	var dir string
	if err == nil {
		dir, err = os.MkdirTemp(base, runDirPrefix)
	}
	if err != nil {
		return "", fmt.Errorf("supervise: no run directory: %w; point TMPDIR at a directory that can be written", err)
	}
	return dir, nil
}

// removeRunDir removes dir if it is a run directory. It may run in several processes at once.
func removeRunDir(dir string) error {
	if !filepath.IsAbs(dir) || !strings.HasPrefix(filepath.Base(dir), runDirPrefix) {
		return nil
	}
	return os.RemoveAll(dir)
}

// RunDirs lists the run directories of this user's fleets, those of fleets that are gone and left theirs
// behind included.
func RunDirs() []string {
	var out []string
	for _, base := range []string{os.Getenv("XDG_RUNTIME_DIR"), os.TempDir()} {
		if base == "" {
			continue
		}
		found, _ := filepath.Glob(filepath.Join(base, runDirPrefix+"*")) // fails for bad patterns only
		out = append(out, found...)
	}
	return out
}
