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

// decodeFault words what is wrong with the value of a key in text, and how it is written rightly.
func decodeFault(e *toml.DecodeError, text []byte) string {
	fault := strings.TrimPrefix(e.Error(), "toml: ")
	if len(e.Key()) == 0 {
		return fault
	}
	ofType := strings.HasPrefix(fault, "cannot ") // the library then names types of this program, which nobody else knows
	name := valueAt(e, text)
	k, known := keyNamed(name)
	switch {
	case known && k.isBool() && ofType:
		_, bare, _ := strings.Cut(name, ".")
		return name + ": " + bare + " must be a boolean; write true or false, without quotes"
	case known && ofType:
		return name + k.given(text, e) + ": " + k.mend()
	case known && !strings.Contains(fault, "; "):
		return name + ": " + fault + "; " + k.mend()
	case ofType:
		return fmt.Sprintf("%s is a table: write [%s] on a line of its own, and its keys below", name, name)
	}
	return name + ": " + fault
}

// valueAt returns the name of the key whose value the fault is about, or of the table. The library may name what is
// around it, or keys below it that cannot be there.
func valueAt(e *toml.DecodeError, text []byte) string {
	parts := e.Key()
	if len(parts) >= 2 {
		return strings.Join(parts[:2], ".")
	}
	row, column := e.Position()
	name := parts[0]
	for _, v := range fileValues(text) {
		if v.line == row && v.column < column && strings.HasPrefix(v.key.Name, parts[0]+".") {
			name = v.key.Name
		}
	}
	return name
}

func (k Key) isBool() bool {
	var none Config
	return k.field(&none).Kind() == reflect.Bool
}

// mend says how a value of the key is written in a file.
func (k Key) mend() string {
	var none Config
	switch v := k.field(&none); v.Interface().(type) {
	case Bytes:
		return `write a size in quotes, e.g. "512MiB"`
	case Duration:
		return `write a time in quotes, e.g. "30s"`
	case Seconds:
		return `write seconds, or a time in quotes, e.g. "30s"`
	case []string:
		return `write a list of texts, e.g. ["a", "b"]`
	case int:
		return "write a whole number, without quotes"
	case float64:
		return "write a number, without quotes"
	case bool:
		return "write true or false, without quotes"
	}
	return "write text, in quotes"
}

// given returns " = " and the value on the line of the fault; "" for a secret, and for a value of several lines.
func (k Key) given(text []byte, e *toml.DecodeError) string {
	row, _ := e.Position()
	lines := strings.Split(string(text), "\n")
	if k.Secret || row > len(lines) {
		return ""
	}
	before, value, ok := strings.Cut(lines[row-1], "=")
	_, bare, _ := strings.Cut(k.Name, ".")
	if !ok || !strings.HasSuffix(strings.Trim(before, " \t\"'"), bare) {
		return ""
	}
	return " = " + places(strings.TrimSpace(value))
}
