// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/pelletier/go-toml/v2/unstable"
)

// fileValue is the value of a key as a file gives it.
type fileValue struct {
	key          Key
	kind         unstable.Kind
	text         string // of a number or word, as written
	line, column int    // where the key begins, from 1
}

// fileValues lists the values of known keys in text, which is TOML, in order and however their keys are written.
func fileValues(text []byte) []fileValue {
	var p unstable.Parser
	p.Reset(text)
	var table []string
	var out []fileValue
	for p.NextExpression() {
		e := p.Expression()
		switch e.Kind {
		case unstable.Table, unstable.ArrayTable:
			table, _ = nameOf(e)
		case unstable.KeyValue:
			out = appendValue(out, &p, table, e)
		}
	}
	return out
}

// appendValue appends the value of e, or those of the inline table that it is.
func appendValue(out []fileValue, p *unstable.Parser, table []string, e *unstable.Node) []fileValue {
	rest, first := nameOf(e)
	name := append(table[:len(table):len(table)], rest...)
	v := e.Value()
	if v.Kind == unstable.InlineTable {
		for it := v.Children(); it.Next(); {
			out = appendValue(out, p, name, it.Node())
		}
		return out
	}
	k, known := keyNamed(strings.Join(name, "."))
	if !known {
		return out
	}
	at := p.Shape(first.Raw).Start
	return append(out, fileValue{key: k, kind: v.Kind, text: string(v.Data), line: at.Line, column: at.Column})
}

// nameOf returns the parts of the key that e is, or that it gives a value to, and the first of them.
func nameOf(e *unstable.Node) (parts []string, first *unstable.Node) {
	for it := e.Key(); it.Next(); {
		if first == nil {
			first = it.Node()
		}
		parts = append(parts, string(it.Node().Data))
	}
	return parts, first
}

// isText reports whether the key takes text, which it reads by itself.
func (k Key) isText() bool {
	var none Config
	_, is := k.field(&none).Addr().Interface().(encoding.TextUnmarshaler)
	return is
}

// setTimes reads the times that values give as plain numbers, which the TOML library takes for nanoseconds: seconds
// where a key says so, else a fault.
func (l *Loaded) setTimes(path string, values []fileValue) error {
	var faults []error
	for _, v := range values {
		if v.kind != unstable.Integer {
			continue
		}
		var err error
		switch v.key.field(&l.Config).Type() {
		case reflect.TypeFor[Seconds](), reflect.TypeFor[Duration]():
			err = v.key.set(&l.Config, v.text)
		}
		if err != nil {
			faults = append(faults, v.fault(path, err))
		}
	}
	return errors.Join(faults...)
}

// fault says where the value is that err is about.
func (v fileValue) fault(path string, err error) error {
	return fmt.Errorf("%s:%d:%d: %s: %w", path, v.line, v.column, v.key.Name, err)
}

// wrongType finds the first value of a key that takes text and has something else, of which the TOML library
// does not tell the place.
func wrongType(values []fileValue) (fileValue, bool) {
	for _, v := range values {
		switch v.kind {
		case unstable.Bool, unstable.Float:
			if v.key.isText() {
				return v, true
			}
		}
	}
	return fileValue{}, false
}
