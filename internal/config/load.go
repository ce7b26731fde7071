// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// maxFileBytes bounds a configuration file; a larger one is a wrong file.
const maxFileBytes = 1 << 20

// byteOrderMark is what editors of Windows write before a text. It is no part of it.
const byteOrderMark = "\uFEFF"

// Flag is a value from the command line.
type Flag struct {
	Name  string // with its dashes
	Value any    // of the key's type
}

// Input is where values come from besides the defaults. All fields may be empty.
type Input struct {
	File  string          // path of a TOML file
	Env   []string        // as os.Environ
	Flags map[string]Flag // by key
}

// Loaded is a configuration and the source of each of its values.
type Loaded struct {
	Config
	source map[string]string // by key; absent means default
	env    []string          // as Input has it
	// Unread lists variables of the environment that look like keys and are none, each with the name
	// that was probably meant.
	Unread []string
}

// otherEnv are the variables that other parts of the program read.
var otherEnv = []string{"CONFIG", "URL", "API_KEY", "LIFELINE_FD", "NOTIFY_FD", "RUN_DIR", "SOAK"}

// Source says where the value of a key comes from: "default", "file PATH:LINE", "env NAME" or
// "flag --NAME".
func (l *Loaded) Source(key string) string {
	if s := l.source[key]; s != "" {
		return s
	}
	return "default"
}

// Set changes a value by its key; source tells where it comes from. It is for values that the program
// works out itself.
func (l *Loaded) Set(key, text, source string) error {
	k, ok := keyNamed(key)
	if !ok {
		return fmt.Errorf("config: no key %s", key)
	}
	l.source[key] = source
	return k.set(&l.Config, text)
}

// Load brings the sources together. It checks that values can be read, not that they make sense;
// that is for Validate.
func Load(in Input) (*Loaded, error) {
	l := &Loaded{Config: DefaultConfig(), source: map[string]string{}, env: in.Env}
	if in.File != "" {
		if err := l.loadFile(in.File); err != nil {
			return nil, err
		}
	}
	if err := l.loadEnv(in.Env); err != nil {
		return nil, err
	}
	for key, f := range in.Flags {
		k, ok := keyNamed(key)
		if !ok {
			return nil, fmt.Errorf("config: flag %s has no key %s", f.Name, key)
		}
		k.field(&l.Config).Set(reflect.ValueOf(f.Value))
		l.source[key] = "flag " + f.Name
	}
	l.listenAt()
	return l, nil
}

func (l *Loaded) loadFile(path string) error {
	st, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("--config %s: no such file; give the path of a TOML file, or leave the flag out", path)
	case err != nil:
		return fmt.Errorf("--config %s: %w", path, plain(err))
	case !st.Mode().IsRegular():
		return fmt.Errorf("--config %s: not a TOML file; give the path of one", path)
	case st.Size() > maxFileBytes:
		return fmt.Errorf("--config %s: larger than %v, so hardly a configuration; give the path of a TOML file", path, Bytes(maxFileBytes))
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("--config %s: %w; give a file that this user can read", path, plain(err))
	}
	text = bytes.TrimPrefix(text, []byte(byteOrderMark))
	dec := toml.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&l.Config); err != nil {
		return fileError(path, text, err)
	}
	values := fileValues(text)
	if err := l.setTimes(path, values); err != nil {
		return err
	}
	for _, v := range values {
		l.source[v.key.Name] = fmt.Sprintf("file %s:%d", path, v.line)
	}
	return nil
}

// plain drops the operation and path that package os puts before a cause.
func plain(err error) error {
	if pe, ok := errors.AsType[*os.PathError](err); ok {
		return pe.Err
	}
	return err
}

func (l *Loaded) loadEnv(env []string) error {
	set := map[string]string{}
	for _, kv := range env {
		if name, text, ok := strings.Cut(kv, "="); ok && strings.HasPrefix(name, EnvPrefix) {
			set[name] = text
		}
	}
	for _, k := range keys {
		text, ok := set[k.Env()]
		if !ok {
			continue
		}
		delete(set, k.Env())
		if err := k.set(&l.Config, text); err != nil {
			return fmt.Errorf("environment variable %s: %w", k.Env(), err)
		}
		l.source[k.Name] = "env " + k.Env()
	}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		if !slices.Contains(otherEnv, strings.TrimPrefix(name, EnvPrefix)) {
			l.Unread = append(l.Unread, name+meantEnv(name))
		}
	}
	return nil
}

// WriteTOML returns c as a file that Load reads back.
func WriteTOML(c Config) ([]byte, error) {
	text, err := toml.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	return text, nil
}
