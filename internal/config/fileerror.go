// SPDX-License-Identifier: Apache-2.0

package config

import (
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
		return fmt.Errorf("%s:%d:%d: %s", path, row, col, decodeFault(e, text))
	}
	if v, ok := wrongType(fileValues(text)); ok {
		return v.fault(path, err)
	}
	return fmt.Errorf("%s: %w", path, err)
}

// decodeFault words what is wrong with the value of a key in text.
func decodeFault(e *toml.DecodeError, text []byte) string {
	fault := strings.TrimPrefix(e.Error(), "toml: ")
	if len(e.Key()) == 0 {
		return fault
	}
	name := strings.Join(e.Key(), ".")
	k, known := keyNamed(name)
	if !known {
		return name + ": " + fault
	}
	var none Config
	kind := k.field(&none).Kind()
	if kind == reflect.Bool {
		_, bare, _ := strings.Cut(name, ".")
		return name + ": " + bare + " must be a boolean"
	}
	mend, ok := map[reflect.Kind]string{
		reflect.Int:    "write a whole number, without quotes",
		reflect.String: "write text, in quotes",
		reflect.Slice:  `write a list of texts, e.g. ["a", "b"]`,
	}[kind]
	if !ok || !strings.HasPrefix(fault, "cannot decode TOML") {
		return name + ": " + fault
	}
	return name + k.given(text, e) + ": " + mend
}

// given returns " = " and the value on the line of the fault; "" for a secret, and for a list of several lines.
func (k Key) given(text []byte, e *toml.DecodeError) string {
	row, _ := e.Position()
	lines := strings.Split(string(text), "\n")
	if k.Secret || row > len(lines) {
		return ""
	}
	_, value, ok := strings.Cut(lines[row-1], "=")
	if !ok {
		return ""
	}
	return " = " + places(strings.TrimSpace(value))
}
