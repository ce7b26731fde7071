// SPDX-License-Identifier: Apache-2.0

package openai

import (
	"math"
	"strconv"
)

// pyInt prints v as Python's repr does.
func pyInt(v int64) string { return strconv.FormatInt(v, 10) }

// choices reads n; absent is 1.
func (f fields) choices() (int, error) {
	n, ok, err := f.integer("n")
	switch {
	case err != nil:
		return 0, err
	case !ok:
		return 1, nil
	case n < 1:
		return 0, badValue("n", pyInt(n), "n must be at least 1, got %d.", n)
	}
	return int(min(n, math.MaxInt32)), nil
}

// maxTokens reads the first of these fields that is given; 0 if none is.
func (f fields) maxTokens(names ...string) (int, error) {
	for _, name := range names {
		n, ok, err := f.integer(name)
		switch {
		case err != nil:
			return 0, err
		case !ok:
			continue
		case n < 1:
			return 0, badValue(name, pyInt(n), "%s must be at least 1, got %d.", name, n)
		}
		return int(min(n, math.MaxInt32)), nil
	}
	return 0, nil
}

// stops reads stop: a string or a list of strings.
func (f fields) stops() ([]string, error) {
	raw := f.raw("stop")
	if raw == nil {
		return nil, nil
	}
	var out []string
	add := func(raw []byte) error {
		v, ok := decodeString(raw)
		switch {
		case !ok:
			return errField("string_type", "stop", "Input should be a valid string", pyValue(raw))
		case v == "":
			return badParam("stop", "stop cannot contain an empty string.")
		case len(v) > MaxStopBytes:
			return badParam("stop", "A stop string has %d bytes; at most %d are allowed.", len(v), MaxStopBytes)
		case len(out) == MaxStops:
			return badParam("stop", "At most %d stop strings may be given.", MaxStops)
		}
		out = append(out, v)
		return whole("stop", raw)
	}
	if raw[0] != '[' {
		return out, add(raw)
	}
	s := scanner{b: raw}
	_, err := s.array(func(int) error {
		v, err := s.value()
		if err != nil {
			return err
		}
		return add(v)
	})
	return out, err
}

// includeUsage reads stream_options, which makes sense with stream only.
func (f fields) includeUsage(stream bool) (bool, error) {
	raw := f.raw("stream_options")
	if raw == nil {
		return false, nil
	}
	if raw[0] != '{' {
		return false, errField("model_attributes_type", "stream_options",
			"Input should be a valid dictionary or object to extract fields from", pyValue(raw))
	}
	options, err := members(raw)
	if err != nil {
		return false, err
	}
	if len(options) > 0 && !stream {
		return false, badParam("stream_options", "Stream options can only be defined when `stream=True`.")
	}
	return decodeBool(options.raw("include_usage"), "stream_options.include_usage")
}

// members splits a checked object.
func members(raw []byte) (fields, error) {
	out := fields{}
	s := scanner{b: raw}
	_, err := s.object(func(key []byte) error {
		name := string(key)
		v, err := s.value()
		out[name] = v
		return err
	})
	return out, err
}
