// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// state is what outlives the process, in one file.
type state struct {
	Version int    `json:"version"`
	Gateway string `json:"gateway"` // random, made with the file
	Secret  []byte `json:"secret"`  // key of the transfer ids, likewise
	Epoch   uint64 `json:"epoch"`   // of the process that wrote last
	// Open are the blocks of transfer ids that may be in use: of this process, and of earlier ones whose consumers were
	// not all told.
	Open []openBlocks `json:"open,omitempty"`
	// What follows was learned of a fleet whose Encoders store under Namespace.
	Namespace string      `json:"namespace,omitempty"`
	Frame     Frame       `json:"frame"`
	Shapes    []shapeGrid `json:"shapes,omitempty"`
}

// openBlocks are the ids of blocks From to To of an epoch, which consumers may know.
type openBlocks struct {
	Epoch     uint64   `json:"epoch"`
	From      uint64   `json:"from"`
	To        uint64   `json:"to"`
	Consumers []string `json:"consumers"`
}

type shapeGrid struct {
	Shape Shape `json:"shape"`
	Grid  Grid  `json:"grid"`
}

const stateVersion = 1

// stateFile is the file at path, which one process holds.
type stateFile struct {
	path string
	lock *os.File
}

// openState takes the file at path, and makes it if there is none. An error names the path.
func openState(path string) (*stateFile, *state, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, nil, err
	}
	lock, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, nil, err
	}
	f := &stateFile{path: path, lock: lock}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("%s: another gateway uses it: %w", path, err), lock.Close())
	}
	s, err := f.read()
	if err != nil {
		return nil, nil, errors.Join(err, lock.Close())
	}
	s.Epoch++
	if err := f.write(s); err != nil {
		return nil, nil, errors.Join(err, lock.Close())
	}
	return f, s, nil
}

func (f *stateFile) read() (*state, error) {
	text, err := os.ReadFile(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		s := &state{Version: stateVersion, Gateway: rand.Text(), Secret: make([]byte, 32)}
		rand.Read(s.Secret)
		return s, nil
	}
	if err != nil {
		return nil, err
	}
	s := &state{}
	if err := json.Unmarshal(text, s); err != nil || s.Version != stateVersion || len(s.Secret) != 32 {
		return nil, fmt.Errorf("%s: not the state of a relay of this release (%v); move it away, and restart the vLLM workers that it delivered to if the last gateway was killed",
			f.path, err)
	}
	return s, nil
}

// write replaces the file as a whole.
func (f *stateFile) write(s *state) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	tmp, err := os.OpenFile(f.path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = tmp.Write(text)
	err = errors.Join(err, tmp.Sync(), tmp.Close())
	if err != nil {
		return err
	}
	return os.Rename(f.path+".new", f.path)
}

func (f *stateFile) close() error { return f.lock.Close() }
