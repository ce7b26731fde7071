// SPDX-License-Identifier: Apache-2.0

package llama

import (
	"testing"
	"unsafe"
)

// TestStructSizes holds the mirrors to the sizes that a C compiler gives the structs on both
// supported architectures.
func TestStructSizes(t *testing.T) {
	f := func(name string, got, want uintptr) {
		t.Helper()
		if got != want {
			t.Errorf("%s is %d bytes, want %d", name, got, want)
		}
	}
	f("llama_model_params", unsafe.Sizeof(modelParams{}), 80)
	f("llama_context_params", unsafe.Sizeof(contextParams{}), 168)
	f("mtmd_context_params", unsafe.Sizeof(mtmdParams{}), 96)
	f("llama_batch", unsafe.Sizeof(cBatch{}), 56)
	f("mtmd_input_text", unsafe.Sizeof(cInputText{}), 24)
	f("mtmd_decoder_pos", unsafe.Sizeof(cPos{}), 16)
	f("llama_chat_message", unsafe.Sizeof(cMessage{}), 16)
}

func TestCheckVersion(t *testing.T) {
	if err := checkVersion("dir", wantVersion); err != nil {
		t.Error(err)
	}
	for _, v := range []string{"0.5.0-dev", "0.6.0", "0.7.0-dev", ""} {
		wantError(t, checkVersion("/some/dir", v), "/some/dir", `"`+v+`"`, wantVersion, "make deps")
	}
}

// good returns the defaults of the pinned version.
func good() (modelParams, contextParams, mtmdParams) {
	return modelParams{loadMode: -1, useExtraBufts: 1},
		contextParams{nCtx: 512, nBatch: 2048, flashAttn: -1, typeK: 1, typeV: 1, offloadKQV: 1},
		mtmdParams{flashAttn: -1, imageMinTokens: -1, imageMax: -1}
}

func TestCheckDefaults(t *testing.T) {
	m, c, p := good()
	if err := checkDefaults("d", m, c); err != nil {
		t.Error(err)
	}
	if err := checkMtmdDefaults("d", p, mediaMarker); err != nil {
		t.Error(err)
	}
	f := func(change func(*modelParams, *contextParams), parts ...string) {
		t.Helper()
		m, c, _ := good()
		change(&m, &c)
		wantError(t, checkDefaults("/some/dir", m, c), append(parts, "/some/dir", "make deps")...)
	}
	f(func(_ *modelParams, c *contextParams) { c.nCtx = 4096 }, "n_ctx is 4096, want 512", "llama_context_params")
	// A library with one size_t less shifts the tail: the last pointer is then what lies on the stack.
	f(func(_ *modelParams, c *contextParams) { c.offloadKQV, c.ctxOther = 0, 0x7ffe1234 }, "offload_kqv is 0", "ctx_other")
	f(func(m *modelParams, _ *contextParams) { m.useExtraBufts = 0 }, "use_extra_bufts is 0, want 1", "llama_model_params")

	p.imageMax = 0
	wantError(t, checkMtmdDefaults("/some/dir", p, "<image>"), `media_marker is <image>`, "image_max_tokens is 0", "/some/dir", "make deps")
}

func TestLogKeepsReasons(t *testing.T) {
	var l nativeLog
	l.line(ggmlError, "old\n")
	mark := l.mark()
	if got, want := l.explain(mark), "the library gives no reason"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	l.line(2, "loading\n")
	l.line(ggmlError, "one ")
	l.line(ggmlContinue, "line\n")
	l.line(ggmlWarn, "odd\n")
	l.line(ggmlError, "two\n")
	if got, want := l.explain(mark), "one line; two"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for range 2 * keptErrors {
		l.line(ggmlError, "x\n")
	}
	if len(l.errors) != keptErrors {
		t.Errorf("%d lines are kept, want %d", len(l.errors), keptErrors)
	}
}
