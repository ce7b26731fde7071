// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// fileError says where in the file, which holds text, the fault is and, for an unknown key, which one was
// probably meant.
func fileError(path string, text []byte, err error) error {
	if strict, ok := errors.AsType[*toml.StrictMissingError](err); ok {
		var all []error
		for _, e := range strict.Errors {
			row, col := e.Position()
			all = append(all, fmt.Errorf("%s:%d:%d: unknown key %s%s", path, row, col, strings.Join(e.Key(), "."), meantKey(e.Key())))
		}
		return errors.Join(all...)
	}
	if e, ok := errors.AsType[*toml.DecodeError](err); ok {
		row, col := e.Position()
		return fmt.Errorf("%s:%d:%d: %s", path, row, col, decodeFault(e))
	}
	if key, line, column := wrongType(text); key != "" {
		return fmt.Errorf("%s:%d:%d: %s: %w", path, line, column, key, err)
	}
	return fmt.Errorf("%s: %w", path, err)
}

// decodeFault words what is wrong with the value of a key.
func decodeFault(e *toml.DecodeError) string {
	fault := strings.TrimPrefix(e.Error(), "toml: ")
	if len(e.Key()) == 0 {
		return fault
	}
	name := strings.Join(e.Key(), ".")
	var none Config
	if k, ok := keyNamed(name); ok && k.field(&none).Kind() == reflect.Bool {
		_, bare, _ := strings.Cut(name, ".")
		return name + ": " + bare + " must be a boolean"
	}
	return name + ": " + fault
}

// wrongType finds a key that takes text and has something else, of which the TOML library does not tell
// the place, and the line and column it is in.
func wrongType(text []byte) (key string, line, column int) {
	var file map[string]map[string]any
	if toml.Unmarshal(text, &file) != nil {
		return "", 0, 0
	}
	var none Config
	table := ""
	for i, whole := range strings.Split(string(text), "\n") {
		l := strings.TrimSpace(whole)
		if name, ok := strings.CutPrefix(l, "["); ok {
			table, _, _ = strings.Cut(name, "]")
			continue
		}
		name, _, ok := strings.Cut(l, "=")
		name = strings.TrimSpace(name)
		k, known := keyNamed(table + "." + name)
		if !ok || !known {
			continue
		}
		if _, isText := k.field(&none).Addr().Interface().(encoding.TextUnmarshaler); !isText {
			continue
		}
		switch file[table][name].(type) {
		case bool, float64, []any, map[string]any:
			return k.Name, i + 1, 1 + strings.Index(whole, name)
		}
	}
	return "", 0, 0
}
