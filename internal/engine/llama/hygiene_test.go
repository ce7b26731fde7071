// SPDX-License-Identifier: Apache-2.0

package llama

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"afterimage/internal/model"
)

// What the libraries read when they are loaded is set by then, and what the user has set stays.
func TestEnvironmentOfLibraries(t *testing.T) {
	for name, want := range map[string]string{"OMP_WAIT_POLICY": "passive", "GGML_NO_BACKTRACE": "1"} {
		t.Setenv(name, "mine")
		setEnvironment()
		if got := os.Getenv(name); got != "mine" {
			t.Errorf("%s: what the user has set became %q", name, got)
		}
		os.Unsetenv(name)
		setEnvironment()
		if got := os.Getenv(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

// shortBytes of address space are left to a process that is short of memory.
const shortBytes = 512 << 20

// shortSide asks for more memory for a context than there is, and for one that fits.
func shortSide(lib *Library, text, _ string) error {
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return err
	}
	var pages uint64
	if _, err := fmt.Sscan(string(statm), &pages); err != nil {
		return err
	}
	most := pages*uint64(os.Getpagesize()) + shortBytes
	if err := unix.Setrlimit(unix.RLIMIT_AS, &unix.Rlimit{Cur: most, Max: most}); err != nil {
		return err
	}
	if x, err := NewText(lib, TextConfig{Model: text, ContextTokens: 1 << 22, Slots: 16}); err == nil {
		x.Close()
		return fmt.Errorf("a context of %d cells fits %d bytes", 16<<22, shortBytes)
	} else if _, err := fmt.Println(err); err != nil {
		return err
	}
	x, err := NewText(lib, TextConfig{Model: text})
	if err != nil {
		return fmt.Errorf("after that, one that fits: %w", err)
	}
	return x.Close()
}

// A context that the memory is too small for is refused with a reason; the process lives.
func TestTooLittleMemory(t *testing.T) {
	p := randomPair(t, model.MLP)
	cmd := side(t, "short", p.text, p.projector)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s%s", err, out, cmd.Stderr)
	}
	if got := string(out); !strings.Contains(got, "alloc") || !strings.Contains(got, "context") {
		t.Errorf("the reason: %s", got)
	}
}
