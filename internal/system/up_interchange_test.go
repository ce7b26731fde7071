// SPDX-License-Identifier: Apache-2.0

//go:build !race

package system

import (
	"image/color"
	"strings"
	"testing"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
	"afterimage/internal/model"
	"afterimage/internal/store/mooncake"
)

// TestUpSharesWithVLLM is TestSharedWithVLLM with the real engine, through a real Mooncake cluster.
func TestUpSharesWithVLLM(t *testing.T) {
	u := startUp(t, append(pair(t, model.MLP), "--store", "mooncake", "--encoder-protocol", "v3", "--encoder-vllm-model", vllmNaming.Model)...)
	a := must[*arena.Arena](t)(arena.New(arena.Config{Name: "vllm", Bytes: 8 << 20}))
	c := must[*mooncake.Client](t)(mooncake.Open(t.Context(), mooncake.Config{Addr: u.address["mooncake-client"], Logger: quiet}, a))
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("mooncake: %v", err)
		}
		a.Close()
	})
	mine, theirs := plain(t, color.RGBA{220, 20, 30, 255}), noise(t, 1)
	first := u.mustAsk(t, "0", mine)
	u.stored(t, "encoder-0", 1)
	second := u.mustAsk(t, "1", mine)
	if sources(first) != "encoded" || sources(second) != "store" || first.Text != second.Text || first.Text == "" {
		t.Errorf("sources %q and %q, texts %q and %q, want encoded, store and one text",
			sources(first), sources(second), first.Text, second.Text)
	}

	ns := embedding.Namespace{Model: vllmNaming.Model, Encoder: embedding.VLLMDefaultEncoder, DType: embedding.BFloat16, Protocol: embedding.V3}
	it := u.mustAsk(t, "0", theirs).Items[0] // for its rows
	u.stored(t, "encoder-0", 2)
	if err := c.Remove(t.Context(), []embedding.Key{vllmKey(t, ns, theirs)}); err != nil && !strings.Contains(err.Error(), "readers") {
		t.Fatal(err)
	}
	eventually(t, "the object is gone", func() bool { return c.Stats().Doomed == 0 })
	payload := readV3(t, c, vllmKey(t, ns, mine), second.Items[0].Rows, it.Cols, ns.DType)
	if err := embedding.CheckFinite(payload, ns.DType); err != nil {
		t.Error(err)
	}
	zero := make([]byte, it.Rows*it.Cols*ns.DType.Bytes())
	if err := plantV3(t, c, a, vllmKey(t, ns, theirs), it.Rows, it.Cols, ns.DType, zero); err != nil {
		t.Fatal(err)
	}
	if got := u.mustAsk(t, "1", theirs); sources(got) != "store" {
		t.Errorf("vLLM's object: source %q, want store", sources(got))
	}

	stdout, stderr, status := run(t, "encoder", "--store", "mooncake", "--protocol", "v3", "--engine", "device", "--mooncake-client", u.address["mooncake-client"])
	if status != 2 || !strings.Contains(stderr, "numbers are made up") || !strings.Contains(stderr, "encoder.vllm_model") {
		t.Errorf("made-up numbers for vLLM: status %d, %s%s", status, stdout, stderr)
	}
}
