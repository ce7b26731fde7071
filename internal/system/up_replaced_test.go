// SPDX-License-Identifier: Apache-2.0

//go:build !race

package system

import (
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"afterimage/internal/testkit"
)

// livez returns what a role says of its life; status 0 when it does not answer.
func (u *upRun) livez(name string) (status int, text string) {
	resp, err := u.client.HTTP.Get("http://" + u.address[name] + "/livez")
	if err != nil {
		return 0, ""
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body)
}

// TestEncoderWithoutStoreForGoodIsReplaced has a publication get stuck between a storage node and a
// mooncake_client that both stand still, so that more than a quarter of the Encoder's arena stays in doubt.
// The Encoder says that it must be restarted, and is, while every request is answered.
func TestEncoderWithoutStoreForGoodIsReplaced(t *testing.T) {
	const doubt = "640" // rows of 10 KiB: more than a quarter of 24 MiB
	u := startUp(t, "--engine", "device", "--device", "rows="+doubt+",encode=1ms,prefill=1us,decode=1ms",
		"--store", "mooncake", "--mooncake-call-timeout", "1s", "--mooncake-register-timeout", "1s", "--mooncake-give-up-timeout", "1s")
	node, _ := testkit.StartMooncakeNode(t, u.address["mooncake-master"], 256<<20)
	before := u.roles()
	moon := before["mooncake-client"]
	defer syscall.Kill(moon, syscall.SIGCONT) // or its fleet would not end

	node.Signal(syscall.SIGSTOP)
	seed := int64(0)
	eventually(t, "a publication is stuck at the node that stands still", func() bool {
		seed++
		u.mustAsk(t, "0", noise(t, seed))
		for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); {
			if u.count(t, "encoder-0", "afterimage_publish_pending_objects", "") == 0 {
				return false
			}
		}
		return true
	})
	if err := syscall.Kill(moon, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the Encoder says that it must be restarted", func() bool {
		status, text := u.livez("encoder-0")
		return status == http.StatusServiceUnavailable && strings.Contains(text, "in doubt") || u.roles()["encoder-0"] != before["encoder-0"]
	})
	if u.said("encoder-0", "closed for good") == 0 {
		t.Error("the Encoder's log does not say that its Store client closed for good")
	}
	u.mustAsk(t, "", noise(t, 1000)) // by whichever Encoder
	eventually(t, "the Encoder is replaced and serves", func() bool {
		if pid := u.roles()["encoder-0"]; pid == 0 || pid == before["encoder-0"] {
			return false
		}
		status, _ := u.livez("encoder-0")
		return status == http.StatusOK
	})
	node.Signal(syscall.SIGCONT)
	if err := syscall.Kill(moon, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the new Encoder publishes, and the other finds it", func() bool {
		seed++
		u.askAgain(t, "0", noise(t, seed)) // the gateway may not have seen it yet
		return sources(u.mustAsk(t, "1", noise(t, seed))) == "store"
	})
	after := u.roles()
	for _, name := range []string{"encoder-1", "prefill-0", "gateway", "mooncake-client"} {
		if before[name] != after[name] {
			t.Errorf("%s was replaced, too", name)
		}
	}
	u.signalGroup(t, syscall.SIGINT)
	u.ends(t, 6*time.Second)
}
