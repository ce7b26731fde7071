// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
)

// MooncakeEnv names the file that Mooncake's clients share, vLLM's and others.
const MooncakeEnv = "MOONCAKE_CONFIG_PATH"

// Modes of a Mooncake client: does it hold a segment of the Store itself?
const (
	MooncakeEmbedded   = "embedded"
	MooncakeStandalone = "standalone-store"
)

// MooncakeFile is what the file of MOONCAKE_CONFIG_PATH says. Sizes are bytes.
type MooncakeFile struct {
	MetadataServer      string // "P2PHANDSHAKE" or a URL
	MasterServerAddress string // host:port
	Protocol            string // "rdma", "tcp"
	DeviceName          string
	Mode                string
	GlobalSegmentSize   int64 // 0 with MooncakeStandalone
	LocalBufferSize     int64
	TenantID            string // "default" stands for none
}

// ErrNoMooncakeFile is LoadMooncakeFile's error where the environment names no file.
//
//lint:ignore ST1005 the words are vLLM's own, which people search for
var ErrNoMooncakeFile = errors.New("The environment variable 'MOONCAKE_CONFIG_PATH' is not set.")

// LoadMooncakeFile reads the file that the environment env names. warn gets one line per parse at most, about
// the keys that nothing reads.
func LoadMooncakeFile(env []string, warn func(string)) (MooncakeFile, error) {
	path := MooncakeFilePath(env)
	if path == "" {
		return MooncakeFile{}, ErrNoMooncakeFile
	}
	f, err := os.Open(path)
	if err != nil {
		return MooncakeFile{}, fmt.Errorf("%s: %w", MooncakeEnv, err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	switch {
	case err != nil:
		return MooncakeFile{}, fmt.Errorf("%s: %w", MooncakeEnv, err)
	case len(text) > maxFileBytes:
		return MooncakeFile{}, fmt.Errorf("%s: %s: not a JSON file of at most %v", MooncakeEnv, path, Bytes(maxFileBytes))
	}
	m, err := ParseMooncakeFile(text, warn)
	if err != nil {
		return m, fmt.Errorf("%s: %s: %w", MooncakeEnv, path, err)
	}
	return m, nil
}

// MooncakeFilePath returns the path of the file that env names; "" if it names none.
func MooncakeFilePath(env []string) string {
	path := ""
	for _, kv := range env {
		if name, value, ok := strings.Cut(kv, "="); ok && name == MooncakeEnv {
			path = value
		}
	}
	return path
}

// ParseMooncakeFile reads the text of such a file. It is lenient where the file is shared: keys of others are
// warned about, and sizes may be numbers, numbers in quotes, or have a unit. It is strict about types: a
// boolean is no number.
func ParseMooncakeFile(text []byte, warn func(string)) (MooncakeFile, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var file map[string]any
	if err := dec.Decode(&file); err != nil {
		return MooncakeFile{}, fmt.Errorf("not a JSON object: %w", err)
	}
	if file == nil {
		return MooncakeFile{}, errors.New("not a JSON object: null")
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return MooncakeFile{}, errors.New("not a JSON object: there is more behind it")
	}
	r := mooncakeReader{file: file}
	m := MooncakeFile{
		MetadataServer:      r.text("metadata_server", ""),
		MasterServerAddress: r.text("master_server_address", ""),
		Protocol:            r.text("protocol", "rdma"),
		DeviceName:          r.text("device_name", ""),
		Mode:                r.text("mode", MooncakeEmbedded),
		GlobalSegmentSize:   r.size("global_segment_size", 4<<30),
		LocalBufferSize:     r.size("local_buffer_size", 4<<30),
		TenantID:            r.tenant(),
	}
	if r.boolean("enable_offload") {
		r.errs = append(r.errs, errors.New("cross_encoder_cache supports a RAM Store; disable enable_offload"))
	}
	if len(r.errs) == 0 { // what could not be read is told already
		m.check(&r)
	}
	if left := slices.Sorted(maps.Keys(file)); len(left) > 0 && warn != nil {
		warn("mooncake: nothing reads " + strings.Join(left, ", "))
	}
	return m, errors.Join(r.errs...)
}

// check holds values against each other.
func (m *MooncakeFile) check(r *mooncakeReader) {
	fault := func(format string, args ...any) { r.errs = append(r.errs, fmt.Errorf(format, args...)) }
	switch {
	case m.Mode != MooncakeEmbedded && m.Mode != MooncakeStandalone:
		fault("unknown Mooncake mode %q; use %s or %s", m.Mode, MooncakeEmbedded, MooncakeStandalone)
	case m.Mode == MooncakeEmbedded && m.GlobalSegmentSize <= 0:
		fault("global_segment_size is %d; mode %s needs more than 0", m.GlobalSegmentSize, m.Mode)
	case m.Mode == MooncakeStandalone && m.GlobalSegmentSize != 0:
		fault("global_segment_size is %d; mode %s needs 0", m.GlobalSegmentSize, m.Mode)
	}
	if a := m.MasterServerAddress; a != "" && !strings.Contains(a, "://") { // with it, it is where masters are looked up
		if host, port, err := net.SplitHostPort(a); err != nil || host == "" || port == "" {
			fault("master_server_address is %q, want host:port", a)
		}
	}
	if m.LocalBufferSize <= 0 {
		fault("local_buffer_size is %d; give more than 0", m.LocalBufferSize)
	}
}
