// SPDX-License-Identifier: Apache-2.0

package model

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// link makes the file from appear as to, whole or not at all: by a hard link, else by a copy.
func link(from, to string) error {
	from, err := filepath.EvalSymlinks(from)
	if err != nil {
		return err
	}
	if same, err := sameFile(from, to); same || err != nil {
		return err
	}
	dir, err := os.MkdirTemp(filepath.Dir(to), ".link.*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	tmp := filepath.Join(dir, filepath.Base(to))
	if os.Link(from, tmp) != nil {
		if err := copyFile(from, tmp); err != nil {
			return err
		}
	}
	return os.Rename(tmp, to)
}

func sameFile(a, b string) (bool, error) {
	sa, err := os.Stat(a)
	if err != nil {
		return false, err
	}
	sb, err := os.Stat(b)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(sa, sb), err
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	defer out.Close()
	if _, err := io.Copy(out, in); err != nil {
		return err
	}
	return out.Close()
}
