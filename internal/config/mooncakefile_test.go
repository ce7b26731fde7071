// SPDX-License-Identifier: Apache-2.0

package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseMooncakeFile(t *testing.T) {
	def := MooncakeFile{Protocol: "rdma", Mode: "embedded", GlobalSegmentSize: 4 << 30, LocalBufferSize: 4 << 30, TenantID: "default"}
	f := func(text string, change func(*MooncakeFile)) {
		t.Helper()
		got, err := ParseMooncakeFile([]byte(text), func(w string) { t.Errorf("%s: warning %q", text, w) })
		if err != nil {
			t.Errorf("%s: %v", text, err)
			return
		}
		want := def
		if change != nil {
			change(&want)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: %s", text, d)
		}
	}
	f(`{}`, nil)
	f(`{"metadata_server":"P2PHANDSHAKE","master_server_address":"h:50051","protocol":"tcp","device_name":"mlx5_0"}`, func(m *MooncakeFile) {
		m.MetadataServer, m.MasterServerAddress, m.Protocol, m.DeviceName = "P2PHANDSHAKE", "h:50051", "tcp", "mlx5_0"
	})
	f(`{"mode":"standalone-store","global_segment_size":0}`, func(m *MooncakeFile) { m.Mode, m.GlobalSegmentSize = "standalone-store", 0 })
	f(`{"enable_offload":false}`, nil)
	f(`{"master_server_address":"etcd://a:2379;b:2379"}`, func(m *MooncakeFile) { m.MasterServerAddress = "etcd://a:2379;b:2379" })
	for text, n := range map[string]int64{
		`123`: 123, `123.0`: 123, `1e6`: 1e6, `"123"`: 123, `"123.0"`: 123, `"4gb"`: 4 << 30, `"4 GB"`: 4 << 30, `"1.5Gb"`: 3 << 29,
		`"512MB"`: 512 << 20, `"7kb"`: 7 << 10, `"9b"`: 9, `" 2mb "`: 2 << 20,
	} {
		f(`{"local_buffer_size":`+text+`}`, func(m *MooncakeFile) { m.LocalBufferSize = n })
		f(`{"global_segment_size":`+text+`}`, func(m *MooncakeFile) { m.GlobalSegmentSize = n })
	}
	for text, id := range map[string]string{`null`: "default", `""`: "default", `"  "`: "default", `" team "`: "team", `"default"`: "default"} {
		f(`{"tenant_id":`+text+`}`, func(m *MooncakeFile) { m.TenantID = id })
	}
}

func TestParseMooncakeRefusals(t *testing.T) {
	f := func(text string, wants ...string) {
		t.Helper()
		_, err := ParseMooncakeFile([]byte(text), nil)
		check(t, err, wants...)
	}
	f(`{"enable_offload":true}`, "cross_encoder_cache supports a RAM Store; disable enable_offload")
	f(`{"enable_offload":1}`, "enable_offload is 1, want a boolean")
	f(`{"enable_offload":"true"}`, "a boolean")
	f(`{"mode":"other"}`, "unknown Mooncake mode")
	f(`{"mode":"standalone-store"}`, "global_segment_size is 4294967296", "needs 0")
	f(`{"global_segment_size":0}`, "more than 0")
	f(`{"global_segment_size":-5}`, "more than 0")
	f(`{"local_buffer_size":0}`, "local_buffer_size is 0")
	f(`{"local_buffer_size":true}`, "local_buffer_size is true, want a whole number")
	f(`{"local_buffer_size":"true"}`, "whole number")
	f(`{"local_buffer_size":1.5}`, "local_buffer_size is 1.5")
	f(`{"local_buffer_size":"1.5"}`, `"1.5"`)
	f(`{"local_buffer_size":"4tb"}`, `"4tb"`)
	f(`{"local_buffer_size":"gb"}`, `"gb"`)
	f(`{"local_buffer_size":"nangb"}`, `"nangb"`)
	f(`{"local_buffer_size":"1e300gb"}`, `"1e300gb"`)
	f(`{"local_buffer_size":null}`, "null")
	f(`{"local_buffer_size":[1]}`, "[1]")
	f(`{"tenant_id":7}`, "tenant_id is 7, want a string or null")
	f(`{"protocol":7}`, "protocol is 7, want a string")
	f(`{"metadata_server":null}`, "metadata_server is null")
	f(`{"master_server_address":"h"}`, `master_server_address is "h", want host:port`)
	f(`{"master_server_address":":50051"}`, "want host:port")
	f(`{"master_server_address":"h:"}`, "want host:port")
	f(`[]`, "not a JSON object")
	f(`null`, "not a JSON object")
	f(``, "not a JSON object")
	f(`{} {}`, "more behind it")
}

// What cannot be read is told once, not again as a value that is out of bounds.
func TestParseMooncakeTellsOnce(t *testing.T) {
	_, err := ParseMooncakeFile([]byte(`{"global_segment_size":true,"local_buffer_size":"gb"}`), nil)
	if err == nil || strings.Count(err.Error(), "global_segment_size") != 1 || strings.Count(err.Error(), "local_buffer_size") != 1 {
		t.Errorf("got %v, want each key once", err)
	}
}

// The file is shared with others: their keys are named once, and do no harm.
func TestParseMooncakeWarnsOnce(t *testing.T) {
	var lines []string
	_, err := ParseMooncakeFile([]byte(`{"zzz":1,"enable_ssd_offload":true,"ssd_offload_path":"/x","protocol":"tcp"}`), func(s string) { lines = append(lines, s) })
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"mooncake: nothing reads enable_ssd_offload, ssd_offload_path, zzz"}, lines); d != "" {
		t.Error(d)
	}
}

func TestLoadMooncake(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.json")
	if err := os.WriteFile(path, []byte(`{"protocol":"tcp"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := LoadMooncakeFile([]string{"X=1", "MOONCAKE_CONFIG_PATH=" + path}, nil)
	if err != nil || m.Protocol != "tcp" {
		t.Errorf("got %+v, %v", m, err)
	}
	for _, env := range [][]string{nil, {"MOONCAKE_CONFIG_PATH="}} {
		_, err = LoadMooncakeFile(env, nil)
		if err == nil || err.Error() != "The environment variable 'MOONCAKE_CONFIG_PATH' is not set." {
			t.Errorf("with %q: %v", env, err)
		}
	}
	_, err = LoadMooncakeFile([]string{"MOONCAKE_CONFIG_PATH=/does/not/exist"}, nil)
	check(t, err, "MOONCAKE_CONFIG_PATH", "/does/not/exist")
	if err := os.WriteFile(path, []byte(`{"a":"`+strings.Repeat("x", maxFileBytes)+`"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = LoadMooncakeFile([]string{"MOONCAKE_CONFIG_PATH=" + path}, nil)
	check(t, err, path, "at most 1MiB")
	if err := os.WriteFile(path, []byte(`{"mode":1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = LoadMooncakeFile([]string{"MOONCAKE_CONFIG_PATH=" + path}, nil)
	check(t, err, path, "mode is 1")
}
