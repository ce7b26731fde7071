// SPDX-License-Identifier: Apache-2.0

//go:build !race

package system

import (
	"image/color"
	"strings"
	"syscall"
	"testing"
	"time"

	"afterimage/internal/model"
)

// TestUpWithMooncake: two Encoders reuse each other's work through a real Mooncake cluster, requests are
// served while its client is away, and reuse goes on when it is back.
func TestUpWithMooncake(t *testing.T) {
	u := startUp(t, append(pair(t, model.MLP), "--store", "mooncake")...)
	red := plain(t, color.RGBA{220, 20, 30, 255})
	first := u.mustAsk(t, "0", red)
	u.stored(t, "encoder-0", 1)
	second := u.mustAsk(t, "1", red)
	if sources(first) != "encoded" || sources(second) != "store" || first.Text != second.Text || first.Text == "" {
		t.Errorf("sources %q and %q, texts %q and %q, want encoded, store and one text",
			sources(first), sources(second), first.Text, second.Text)
	}

	eventually(t, "the gateway knows of what is stored", func() bool {
		return u.count(t, "gateway", "afterimage_gateway_stored_keys", "") == 1
	})

	const client = "mooncake-client"
	stdout, _, status := run(t, "doctor", "--store", "mooncake", "--mooncake-client", u.address[client])
	if status != 0 || !strings.Contains(stdout, "ok    object") || !strings.Contains(stdout, "ok    limits") {
		t.Errorf("doctor: status %d,\n%s", status, stdout)
	}

	release := u.hold(t, client)
	away := plain(t, color.RGBA{20, 40, 220, 255})
	first, second = u.mustAsk(t, "0", away), u.mustAsk(t, "1", away)
	if sources(first) != "encoded" || sources(second) != "encoded" || first.Text != second.Text {
		t.Errorf("without mooncake_client: sources %q and %q, texts %q and %q, want both encoded and of one text",
			sources(first), sources(second), first.Text, second.Text)
	}
	release()
	// Until the master gives the lost storage up, some objects are sent there in vain.
	seed := int64(0)
	eventually(t, "work is reused again", func() bool {
		seed++
		picture := noise(t, seed)
		first, second := u.mustAsk(t, "0", picture), u.mustAsk(t, "1", picture)
		if first.Text != second.Text {
			t.Errorf("texts %q and %q, want one", first.Text, second.Text)
		}
		return sources(second) == "store"
	})

	u.signalGroup(t, syscall.SIGINT)
	u.ends(t, 6*time.Second)
}

// Mooncake's programs know nothing of up, and still do not outlive it.
func TestKilledUpLeavesNoMooncake(t *testing.T) {
	u := startUp(t, "--engine", "device", "--store", "mooncake")
	roles := u.roles()
	for _, name := range []string{"mooncake-master", "mooncake-client"} {
		if roles[name] == 0 {
			t.Errorf("%s does not run: %v", name, roles)
		}
	}
	if err := u.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	u.gone(t, 5*time.Second)
}

// TestDirectWithMooncake: a P/D that keeps nothing reads a real Mooncake cluster into its own memory, while no
// Encoder is asked; in p2p mode an Encoder reads it and forwards. The answers are one.
func TestDirectWithMooncake(t *testing.T) {
	red := plain(t, color.RGBA{220, 20, 30, 255})
	var texts []string
	for _, c := range []struct{ mode, encoder, want string }{{"direct", "", "store by copy"}, {"p2p", "1", "store by "}} {
		u := startUp(t, append(pair(t, model.MLP), "--store", "mooncake", "--delivery", c.mode, "--prefill-resident-bytes", "0")...)
		first := u.mustAsk(t, "0", red)
		u.stored(t, "encoder-0", 1)
		second := u.mustAsk(t, c.encoder, red)
		if !strings.HasPrefix(road(second), c.want) || (second.Items[0].Encoder == "") != (c.mode == "direct") || second.Text != first.Text {
			t.Errorf("%s: %s with the help of %q, %q after %q", c.mode, road(second), second.Items[0].Encoder, second.Text, first.Text)
		}
		texts = append(texts, second.Text)
		u.signalGroup(t, syscall.SIGINT)
		u.ends(t, 30*time.Second) // how soon is the matter of other tests
	}
	if texts[0] != texts[1] || texts[0] == "" {
		t.Errorf("direct %q, p2p %q", texts[0], texts[1])
	}
}
