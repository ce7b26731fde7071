// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding"
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// EnvPrefix begins the name of every environment variable of the configuration.
const EnvPrefix = "AFTERIMAGE_"

// Key is one value of a Config: where it is and what it is called.
type Key struct {
	Name string // "gateway.max_images"
	Help string
	// Secret says that the value is shown to nobody.
	Secret bool
	index  []int // of the field, for reflect
}

// Env returns the name of the environment variable.
func (k Key) Env() string {
	return EnvPrefix + strings.ToUpper(strings.ReplaceAll(k.Name, ".", "_"))
}

// Keys lists all keys in the order of the struct.
func Keys() []Key { return keys }

var keys = func() []Key {
	var out []Key
	for table := range reflect.TypeFor[Config]().Fields() {
		for f := range table.Type.Fields() {
			_, secret := f.Tag.Lookup("secret")
			out = append(out, Key{
				Secret: secret,
				Name:   table.Tag.Get("toml") + "." + f.Tag.Get("toml"),
				Help:   f.Tag.Get("help"),
				index:  append(append([]int{}, table.Index...), f.Index...),
			})
		}
	}
	return out
}()

// keyNamed finds a key.
func keyNamed(name string) (Key, bool) {
	for _, k := range keys {
		if k.Name == name {
			return k, true
		}
	}
	return Key{}, false
}

// field returns the key's value in c, which can be set.
func (k Key) field(c *Config) reflect.Value { return reflect.ValueOf(c).Elem().FieldByIndex(k.index) }

// Text returns the key's value in c as it is written in the environment; lists have commas.
func (k Key) Text(c *Config) string {
	switch v := k.field(c).Interface().(type) {
	case []string:
		return strings.Join(v, ",")
	default:
		return fmt.Sprint(v)
	}
}

// hidden stands for the value of a secret.
const hidden = "(not shown)"

// Shown returns the key's value in c for people: that of a secret is hidden, and what URLs hold besides a place.
func (k Key) Shown(c *Config) string {
	if text := k.Text(c); !k.Secret || text == "" {
		return places(text)
	}
	return hidden
}

// set reads text into the key's value in c.
func (k Key) set(c *Config, text string) error {
	v := k.field(c)
	if u, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		return u.UnmarshalText([]byte(text))
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return fmt.Errorf("%q is neither true nor false; write one of them", text)
		}
		v.SetBool(b)
	case reflect.Int:
		n, err := ParseInt(text)
		if err != nil {
			return err
		}
		v.SetInt(int64(n))
	case reflect.Float64:
		x, err := ParseFloat(text)
		if err != nil {
			return err
		}
		v.SetFloat(x)
	case reflect.Slice:
		var list []string
		for part := range strings.SplitSeq(text, ",") {
			if part = strings.TrimSpace(part); part != "" {
				list = append(list, part)
			}
		}
		v.Set(reflect.ValueOf(list))
	default:
		return fmt.Errorf("config: key %s has a type that cannot be read", k.Name)
	}
	return nil
}
