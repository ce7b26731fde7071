// SPDX-License-Identifier: Apache-2.0

package llama

import (
	"flag"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"afterimage/internal/model"
)

// TestMain runs the tests or, when the environment says so, one side of TestSplitEqualsWhole. It keeps
// the native log out of the output of passing tests.
func TestMain(m *testing.M) {
	flag.Parse()
	if !testing.Verbose() {
		slog.SetDefault(slog.New(slog.DiscardHandler))
	}
	if side := os.Getenv(envSide); side != "" {
		os.Exit(runSide(side))
	}
	goleak.VerifyTestMain(m)
}

// libraryDir finds the libraries for tests, whose working directory is that of the package: in the
// folder that the environment names, or in the cache of the project.
func libraryDir() (string, error) {
	if dir := os.Getenv(EnvDir); dir != "" {
		return FindDir(dir)
	}
	wd, err := os.Getwd()
	if err != nil {
		return "", err
	}
	return FindDir(filepath.Join(wd, "..", "..", "..", ".cache", "engine", release+"-"+machine()))
}

// library opens the libraries. A test that needs them fails without, with the hint how to get them.
func library(t *testing.T) *Library {
	t.Helper()
	dir, err := libraryDir()
	if err != nil {
		t.Fatal(err)
	}
	lib, err := Open(dir, GPUOff)
	if err != nil {
		t.Fatal(err)
	}
	return lib
}

// pair is a model pair on disk.
type pair struct{ text, projector string }

// randomPair writes a tiny random pair.
func randomPair(t *testing.T, projector model.Projector) pair {
	t.Helper()
	dir := t.TempDir()
	if err := model.WriteRandom(dir, model.RandomOptions{Projector: projector, Seed: 1}); err != nil {
		t.Fatal(err)
	}
	return pair{filepath.Join(dir, model.TextFile), filepath.Join(dir, model.ProjectorFile)}
}

// newEncoder makes an Encoder that lives as long as the test.
func newEncoder(t *testing.T, p pair) *Encoder {
	t.Helper()
	e, err := NewEncoder(library(t), EncoderConfig{Model: p.text, MMProj: p.projector})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// newText makes a text engine that lives as long as the test.
func newText(t *testing.T, cfg TextConfig) *Text {
	t.Helper()
	x, err := NewText(library(t), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.Close() })
	return x
}
