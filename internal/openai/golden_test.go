// SPDX-License-Identifier: Apache-2.0

package openai

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// golden reads a request captured from a client, or the response of vLLM to it: status line, header
// and body.
func golden(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "monolith", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// goldenResponse splits a captured response.
func goldenResponse(t testing.TB, name string) (status, header, body string) {
	t.Helper()
	raw := strings.ReplaceAll(string(golden(t, name+".response.txt")), "\r\n", "\n")
	status, rest, _ := strings.Cut(raw, "\n")
	header, body, ok := strings.Cut(rest, "\n\n")
	if !ok {
		t.Fatalf("%s has no body", name)
	}
	return status, header, strings.TrimSuffix(body, "\n")
}

// TestGoldenRefusals compares the body of each refusal with vLLM's, byte for byte.
func TestGoldenRefusals(t *testing.T) {
	chat := func(b []byte) error { _, err := ParseChat(b); return err }
	scan := func(b []byte) error { _, err := Scan(b, ScanLimits{MaxImages: 4}); return err }
	// The pictures are not the point of these requests, and P/D never sees one.
	chatWithItems := func(b []byte) error {
		r, err := Scan(b, ScanLimits{MaxImages: 4})
		if err != nil {
			return err
		}
		return chat(r.Splice(func(i int) []byte { return []byte(`{"type":"afterimage_item","index":0}`) }))
	}
	f := func(name string, parse func([]byte) error) {
		t.Helper()
		err := parse(golden(t, name+".request.json"))
		if err == nil {
			t.Errorf("%s: accepted", name)
			return
		}
		_, _, want := goldenResponse(t, name)
		if got := string(AsError(err).AppendJSON(nil)); got != want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, want)
		}
	}
	for _, parse := range []func([]byte) error{chat, scan} {
		f("err_empty_messages", parse)
		f("err_json_array", parse)
		f("err_no_messages", parse)
		f("err_not_json", parse)
		f("err_audio", parse)
	}
	f("err_too_many_images", scan)
	f("err_n_stream_opts", scan)
	f("err_bad_temperature", chatWithItems)
	f("err_temperature_range", chatWithItems)
	f("err_max_tokens_neg", chatWithItems)
	f("err_n_stream_opts", chatWithItems)
}

// TestGoldenAccepted passes every request that vLLM answers, and those that it refuses for reasons
// outside of the body's form.
func TestGoldenAccepted(t *testing.T) {
	f := func(name string, images int) {
		t.Helper()
		r, err := Scan(golden(t, name+".request.json"), scanLimits)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
		if len(r.Media) != images {
			t.Errorf("%s: got %d images, want %d", name, len(r.Media), images)
		}
	}
	f("text", 0)
	f("image1", 1)
	f("image1_stream", 1)
	f("image1_stream_usage", 1)
	f("image1_uuid", 1)
	f("image2", 2)
	f("image_uuid_only", 1)
	f("err_bad_role", 0)
	f("err_too_long", 0)
	f("err_unknown_model", 1)
	f("err_bad_base64", 1)
	f("err_bad_url_scheme", 1)
	f("err_file_url", 1)
	f("err_ec_params_without_connector", 1)
}

func TestGoldenOtherErrors(t *testing.T) {
	f := func(name string, e *Error) {
		t.Helper()
		_, _, want := goldenResponse(t, name)
		if got := string(e.AppendJSON(nil)); got != want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, want)
		}
	}
	f("err_unknown_model", ModelNotFound("nope", "tiny-vl"))
	f("err_too_long", PromptTooLong(2048, 2049))
	f("err_max_tokens_too_big", MaxTokensTooLarge(100000, 2048))
	f("image_uuid_only_unknown", CacheMiss(0))
	f("err_file_url", Internal("Cannot load local files without `--allowed-local-media-path`."))
	f("err_bad_base64", BadRequest("", "Non-base64 digit found"))
}
