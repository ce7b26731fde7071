// SPDX-License-Identifier: Apache-2.0

package system

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
)

// chosen are the members whose values the model, the clock or the server's name decide.
var chosen = map[string]bool{
	"id": true, "created": true, "model": true, "content": true, "system_fingerprint": true, "owned_by": true, "root": true,
	"prompt_tokens": true, "completion_tokens": true, "total_tokens": true,
}

// cached is what usage says of reused tokens: as vLLM does with --enable-prompt-tokens-details, without
// which the recordings were made, and only where there are some.
var (
	cachedInStream = regexp.MustCompile(`,"prompt_tokens_details":{"cached_tokens":[1-9][0-9]*}}`)
	cached         = regexp.MustCompile(`"prompt_tokens_details":{"cached_tokens":[1-9][0-9]*}`)
)

// shape lists every member of a JSON text in its order, one line each, with its value; of chosen
// members the kind of value, and of an id what stands before its dash. The text must be compact.
func shape(t *testing.T, text string) []string {
	t.Helper()
	text = cachedInStream.ReplaceAllString(text, "}")
	text = cached.ReplaceAllString(text, `"prompt_tokens_details":null`)
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	var lines []string
	if err := appendShape(dec, "", &lines); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, []byte(text)); err != nil || compact.String() != text {
		t.Errorf("white space between tokens (%v): %s", err, text)
	}
	if _, err := dec.Token(); err != io.EOF {
		t.Fatalf("more than one JSON text: %s", text)
	}
	return lines
}

// appendShape walks one value.
func appendShape(dec *json.Decoder, path string, lines *[]string) error {
	tok, err := dec.Token()
	if err != nil {
		return err
	}
	add := func(v any) {
		if path == "" {
			*lines = append(*lines, fmt.Sprint(v))
			return
		}
		*lines = append(*lines, fmt.Sprintf("%s = %v", path, v))
	}
	open, ok := tok.(json.Delim)
	if !ok {
		add(valueShape(path, tok))
		return nil
	}
	add(open)
	for i := 0; dec.More(); i++ {
		member := fmt.Sprintf("%s[%d]", path, i)
		if open == '{' {
			key, err := dec.Token()
			if err != nil {
				return err
			}
			member = path + "." + key.(string)
		}
		if err := appendShape(dec, member, lines); err != nil {
			return err
		}
	}
	end, err := dec.Token()
	if err == nil {
		add(end)
	}
	return err
}

// valueShape prints a scalar, or what it is like.
func valueShape(path string, v json.Token) string {
	name := path[strings.LastIndex(path, ".")+1:]
	switch s := v.(type) {
	case nil:
		return "null"
	case json.Number:
		if chosen[name] {
			return "a number"
		}
		return s.String()
	case string:
		if name == "id" && strings.Contains(s, "-") {
			return s[:strings.Index(s, "-")] + "-…"
		}
		if chosen[name] {
			return "a string"
		}
		return fmt.Sprintf("%q", s)
	}
	return fmt.Sprint(v)
}

// events cuts a stream into the data of its events, which must be framed as vLLM frames them.
func events(t *testing.T, stream string) []string {
	t.Helper()
	whole, ok := strings.CutSuffix(stream, "\n\n")
	if !ok {
		t.Fatalf("the stream does not end with an empty line: %q", stream)
	}
	var out []string
	for frame := range strings.SplitSeq(whole, "\n\n") {
		data, ok := strings.CutPrefix(frame, "data: ")
		if !ok || strings.Contains(data, "\n") {
			t.Fatalf("not one line of data: %q", frame)
		}
		out = append(out, data)
	}
	return out
}

// streamShape lists the shapes of all events of a stream. Every chunk must carry the same head, and the
// first an empty text.
func streamShape(t *testing.T, stream string) [][]string {
	t.Helper()
	var out [][]string
	all := events(t, stream)
	if !strings.Contains(all[0], `"delta":{"role":"assistant","content":""}`) {
		t.Errorf("the first chunk is not that of the role: %s", all[0])
	}
	head, _, _ := strings.Cut(all[0], `"choices"`)
	for _, e := range all {
		if e == "[DONE]" {
			out = append(out, []string{e})
			continue
		}
		if !strings.HasPrefix(e, head) {
			t.Errorf("a chunk has another head than the first, %s: %s", head, e)
		}
		if strings.Contains(e, `"usage"`) {
			checkUsage(t, e)
		}
		out = append(out, shape(t, e))
	}
	return out
}

// checkUsage adds the counts of a body up, which must be there unless it is no answer.
func checkUsage(t *testing.T, body string) {
	t.Helper()
	var b struct {
		Object string
		Usage  map[string]any
	}
	if err := json.Unmarshal([]byte(body), &b); err != nil {
		t.Fatal(err)
	}
	if b.Object == "list" {
		return
	}
	n := func(name string) float64 { v, _ := b.Usage[name].(float64); return v }
	if n("prompt_tokens") < 1 || n("completion_tokens") < 1 || n("prompt_tokens")+n("completion_tokens") != n("total_tokens") {
		t.Errorf("usage does not add up: %v", b.Usage)
	}
}
