// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// S09: nothing that is shown of a configuration has a secret in it, be it right or wrong; the roles of up get it.
func TestSecretsAreNotShown(t *testing.T) {
	const key, token = "a-key-of-the-operator", "a token with spaces"
	l, err := Load(Input{Env: []string{"AFTERIMAGE_GATEWAY_API_KEYS=" + key + "," + key, "AFTERIMAGE_FLEET_TOKEN=" + token}})
	if err != nil {
		t.Fatal(err)
	}
	var shown strings.Builder
	if err := l.Show(&shown, false); err != nil {
		t.Fatal(err)
	}
	values, err := json.Marshal(l.Values(true))
	if err != nil {
		t.Fatal(err)
	}
	wrong := l.Validate(RoleGateway)
	for what, text := range map[string]string{"config print": shown.String(), "its JSON": string(values), "the error": fmt.Sprint(wrong)} {
		if strings.Contains(text, key) || strings.Contains(text, token) || !strings.Contains(text, "token") || !strings.Contains(text, hidden) {
			t.Errorf("%s: %s", what, text)
		}
	}
	for _, words := range []string{"gateway.api_keys", "the same key is there already", "fleet.token", "16 to 512 printable"} {
		if !strings.Contains(wrong.Error(), words) {
			t.Errorf("the error lacks %q: %v", words, wrong)
		}
	}
	file, err := WriteTOML(l.Config)
	if err != nil || !strings.Contains(string(file), key) {
		t.Errorf("the roles of up do not get the keys: %v", err)
	}
}

// What is shown and logged has the places of URLs, and not what lets somebody in there.
func TestURLsAreShownAsPlaces(t *testing.T) {
	const in, at = "let-me-in", "127.0.0.1:4318"
	for _, value := range []string{
		"http://me:" + in + "@" + at, "http://" + in + "@" + at + "/v1", "https://" + at + "/v1?key=" + in, "http://a:" + in + "@b:1,http://c:" + in + "@" + at,
		"http://me:p@" + in + "@" + at, "http://me:" + in + "@" + at + "\n[tracing]\notlp_endpoint='x'",
	} {
		l, err := Load(Input{Env: []string{"AFTERIMAGE_TRACING_OTLP_ENDPOINT=" + value}})
		if err != nil {
			t.Fatal(err)
		}
		var file strings.Builder
		if err := l.Show(&file, true); err != nil {
			t.Fatal(err)
		}
		for what, text := range map[string]string{"the log": fmt.Sprint(l.Attrs()), "config print": file.String(), "its JSON": fmt.Sprint(l.Values(true))} {
			if strings.Contains(text, in) || !strings.Contains(text, at) || !strings.Contains(text, hidden) {
				t.Errorf("%s: %s is told as %s", what, value, text)
			}
		}
		if again, err := Load(Input{File: write(t, file.String())}); err != nil || again.Tracing.Endpoint != "" {
			t.Errorf("what is not whole is read back: %q, %v", again.Tracing.Endpoint, err)
		}
	}
	if text := "http://10.0.0.7:8100,http://10.0.0.8:8100 a@b ?"; places(text) != text {
		t.Errorf("%q is told as %q", text, places(text))
	}
}

// Errors end up in logs; of URLs they name the places only.
func TestURLsInErrors(t *testing.T) {
	const in = "let-me-in"
	path := filepath.Join(t.TempDir(), "wrong.toml")
	if err := os.WriteFile(path, []byte("[tracing]\notlp_endpoint = [\"https://me:"+in+"@host\"]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, ofFile := Load(Input{File: path})
	l, err := Load(Input{Env: []string{
		"AFTERIMAGE_TRACING_OTLP_ENDPOINT=https://me:" + in + "@host:99999", "AFTERIMAGE_VLLM_DECODE_SERVERS_URLS=http://me:" + in + "@host,http://host?" + in,
	}})
	if err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{"a file": ofFile, "values": l.Validate(RoleGateway)} {
		if text := fmt.Sprint(err); strings.Contains(text, in) || !strings.Contains(text, "://"+hidden+"@host") {
			t.Errorf("the error about %s: %s", what, text)
		}
	}
	if text := l.Validate(RoleGateway).Error(); !strings.Contains(text, `"http://host?`+hidden+`" is no worker`) {
		t.Errorf("the error about values: %s", text)
	}
}

// What sounds like a secret is one.
func TestSecretsAreTagged(t *testing.T) {
	for _, k := range Keys() {
		_, name, _ := strings.Cut(k.Name, ".")
		sounds := slices.ContainsFunc([]string{"token", "api_key", "password", "secret"}, func(word string) bool { return strings.Contains(name, word) })
		if sounds && !strings.HasSuffix(name, "_file") && name != "step_tokens" && !k.Secret {
			t.Errorf("%s is shown to people; tag it secret", k.Name)
		}
	}
}

func TestTokensOfAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	f := func(text string, want []string, words string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := (&Fleet{TokenFile: path}).Tokens()
		if !slices.Equal(got, want) || (err == nil) != (words == "") || err != nil && !strings.Contains(err.Error(), words) {
			t.Errorf("%q: %q, %v", text, got, err)
		}
		if err != nil && strings.Contains(err.Error(), "short") {
			t.Errorf("the error shows the token: %v", err)
		}
	}
	const one, two = "0123456789abcdef", "fedcba9876543210"
	f(one, []string{one}, "")
	f("# the next one\r\n"+one+"\r\n\n  "+two+"  \n", []string{one, two}, "")
	f("\uFEFF"+one, []string{one}, "")
	f("", nil, "it has no token")
	f("# none\n", nil, "it has no token")
	f(one+"\nshort", nil, "token 2: a token has 16")
	f(one+" "+two, nil, "token 1")
	f(strings.Repeat("x", maxTokenFile+1), nil, "larger than")
	if _, err := (&Fleet{TokenFile: path + "x"}).Tokens(); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("no file: %v", err)
	}
	l, err := Load(Input{Env: []string{"AFTERIMAGE_FLEET_TOKEN=" + one, "AFTERIMAGE_FLEET_TOKEN_FILE=" + path}})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Validate(RoleEncoder); err == nil || !strings.Contains(err.Error(), "there is fleet.token too") {
		t.Errorf("both: %v", err)
	}
}
