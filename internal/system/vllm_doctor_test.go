// SPDX-License-Identifier: Apache-2.0

//go:build vllm && !race

package system

import (
	"strconv"
	"strings"
	"testing"

	"afterimage/internal/testkit"
)

// examined runs `afterimage doctor --vllm` on the rig: alone it finds all well, with the Encoder's names too, and with
// others it says which they are.
func (r *relayRig) examined(t *testing.T) {
	t.Helper()
	f := func(well bool, wants []string, args ...string) {
		t.Helper()
		args = append([]string{"doctor", "--vllm", "--encode-servers-urls", r.encoder, "--ec-consumer-zmq-addrs", r.control,
			"--mooncake-client", r.cluster.Addr(), "--mooncake-admin", r.cluster.AdminAddr()}, args...)
		out, err := command(t, args...).CombinedOutput()
		for _, want := range wants {
			if !strings.Contains(string(out), want) {
				t.Errorf("doctor %v: %q is missing in:\n%s", args[10:], want, out)
			}
		}
		if (err == nil) != well {
			t.Errorf("doctor %v: %v:\n%s", args[10:], err, out)
		}
		t.Logf("doctor %v:\n%s", args[10:], out)
	}
	stored := []string{"ok    encoder", "encodes with tiny-vl", "ok    names", "ok    namespace", "it stores under " + r.ns.String(), "ok    consumer", "1 shard that can be written to"}
	well := append(stored, "ok    automatic names", "with blake3", "ok    keys", " x 128 of torch.bfloat16, under "+r.ns.String())
	f(true, well)
	f(true, well, "--relay-model", r.ns.Model)
	f(false, append(stored, "warn  automatic names", "fail  keys", "[relay] says embedding@model:/other@", `relay.model = "`+r.ns.Model+`"`), "--relay-model", "/other")
	f(false, append(stored, "fail  keys", `relay.encoder = "`+r.ns.Encoder+`"`), "--relay-model", r.ns.Model, "--relay-encoder", "x")
	gone := "tcp://127.0.0.1:" + strconv.Itoa(testkit.FreePort(t))
	f(false, []string{"ok    keys", "fail  consumer", "connection refused"}, "--ec-consumer-zmq-addrs", gone)
}
