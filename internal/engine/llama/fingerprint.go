// SPDX-License-Identifier: Apache-2.0

package llama

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/zeebo/blake3"

	"afterimage/internal/embedding"
	"afterimage/internal/engine"
)

// fingerprint names everything that decides the output of an Encoder: the projector's bytes, the
// engine, the width of the rows, the processing rules, and the layouts of the probed sizes. Through
// the layouts it covers what the text model adds (token ids round the rows, kind of positions).
func fingerprint(path string, spec engine.EncoderSpec, layouts []embedding.Layout) (string, error) {
	sum, err := hashFile(path)
	if err != nil {
		return "", err
	}
	fields := struct {
		Format     int
		Projector  string
		Engine     string
		Cols       int
		DType      embedding.DType
		Processing embedding.Processing
		Layouts    []embedding.Layout
	}{1, hex.EncodeToString(sum[:]), spec.Engine, spec.Cols, spec.DType, spec.Processing, layouts}
	text, err := json.Marshal(fields) // field order and escaping are fixed, so equal values are equal bytes
	if err != nil {
		return "", fmt.Errorf("llama: fingerprint: %w", err)
	}
	all := blake3.Sum256(text)
	return hex.EncodeToString(all[:16]), nil
}

// fileState tells whether a file is still the one that was hashed.
type fileState struct {
	path  string
	bytes int64
	mtime time.Time
}

// hashes remembers the sums of files while the process runs: a projector can be a gigabyte, and tests
// and restarts of a role inside one process ask again.
var hashes struct {
	sync.Mutex
	m map[fileState][32]byte
}

// hashFile returns the BLAKE3-256 of a file's bytes.
func hashFile(path string) ([32]byte, error) {
	var sum [32]byte
	f, err := os.Open(path)
	if err != nil {
		return sum, fmt.Errorf("llama: %w", err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return sum, fmt.Errorf("llama: %w", err)
	}
	state := fileState{path, st.Size(), st.ModTime()}
	hashes.Lock()
	defer hashes.Unlock()
	if sum, ok := hashes.m[state]; ok {
		return sum, nil
	}
	h := blake3.New()
	if _, err := io.CopyBuffer(struct{ io.Writer }{h}, f, make([]byte, 1<<20)); err != nil {
		return sum, fmt.Errorf("llama: %s: %w", path, err)
	}
	h.Sum(sum[:0])
	if hashes.m == nil {
		hashes.m = make(map[fileState][32]byte)
	}
	hashes.m[state] = sum
	return sum, nil
}
