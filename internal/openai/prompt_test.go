// SPDX-License-Identifier: Apache-2.0

package openai

import (
	"fmt"
	"strings"
	"testing"
)

// Walk gives a value in order and whole but for its end, with the media where they stand; a member that is not there
// has nothing.
func TestEnvelopeWalk(t *testing.T) {
	f := func(body, name, want string) {
		t.Helper()
		e, err := ReadEnvelope(newDrip(body, 7), 9, nil)
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		e.Walk(name, func(p []byte) { b.Write(p) }, func(i int) { fmt.Fprintf(&b, "<%d>", i) })
		if b.String() != want {
			t.Errorf("%s of %s: got %s, want %s", name, body, b.String(), want)
		}
	}
	const part = `{"type":"image_url","image_url":{"url":"data:,x"}}`
	f(`{"a":1,"messages": [{"role":"user","content":["x",`+part+`,`+part+`]} ],"prompt":"no"}`, "messages", `[{"role":"user","content":["x",<0>,<1>]} `)
	f(`{"messages":[{"role":"user","content":"hi"}],"prompt":"some words"}`, "prompt", `"some words`)
	f(`{"messages":[{"role":"user","content":"hi"}]}`, "prompt", "")
}
