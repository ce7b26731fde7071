// SPDX-License-Identifier: Apache-2.0

package vllmconsumer

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
)

// random is what two consumers do not agree on.
var random = regexp.MustCompile(`"(reservation_id|dst_session)": "[^"]+"|"dst_ptr": [1-9][0-9]*|"ports": \[[0-9]+\]`)

// TestGoldenExchanges: the stand-in answers what a P/D of vLLM 0.32.0 answered, to the byte but for what is random.
func TestGoldenExchanges(t *testing.T) {
	b, err := os.ReadFile("../../vllm/consumer/testdata/control.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Exchanges []struct{ Request, Response string }
	}
	if err := json.Unmarshal(b, &golden); err != nil || len(golden.Exchanges) < 20 {
		t.Fatalf("%d exchanges, %v", len(golden.Exchanges), err)
	}
	c := Start(t, Config{PoolBytes: 64 << 20})
	ids := map[string]string{} // recorded reservation -> ours
	idIn := regexp.MustCompile(`"reservation_id": "([0-9a-f]{32})"`)
	for _, x := range golden.Exchanges {
		if strings.Contains(x.Request, `"event_port"`) {
			continue
		}
		request := idIn.ReplaceAllStringFunc(x.Request, func(s string) string { return `"reservation_id": "` + ids[idIn.FindStringSubmatch(s)[1]] + `"` })
		got := c.Shards[0].Answer([]byte(request))
		if theirs, ours := idIn.FindStringSubmatch(x.Response), idIn.FindStringSubmatch(got); theirs != nil && ours != nil {
			ids[theirs[1]] = ours[1]
		}
		if random.ReplaceAllString(got, "$1") != random.ReplaceAllString(x.Response, "$1") {
			t.Errorf("%s\n got %s\nwant %s", request, got, x.Response)
		}
	}
	if n := c.Shards[0].InUse(); n != 0 {
		t.Errorf("%d bytes are held after all was cancelled", n)
	}
}
