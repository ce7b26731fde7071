// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
	"afterimage/internal/store"
	"afterimage/internal/store/mooncake"
	"afterimage/internal/testkit"
	"afterimage/internal/testkit/vllmconsumer"
)

// stubVLLMEncoder answers as a vLLM Encoder of 4 rows to a picture does, and publishes under the keys of ns. What it calls
// a picture is the name with suffix.
func stubVLLMEncoder(t *testing.T, ns embedding.Namespace, c *mooncake.Client, a *arena.Arena, suffix string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("Authorization"); got != "Bearer secret-of-the-fleet" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if r.Method == http.MethodGet {
			_, _ = io.WriteString(w, `{"object":"list","data":[{"id":"m"}]}`)
			return
		}
		var body struct {
			Messages []struct {
				Content []struct {
					UUID string `json:"uuid"`
				} `json:"content"`
			} `json:"messages"`
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
			return
		}
		name := body.Messages[0].Content[0].UUID + suffix
		if buf, err := a.Reserve(embedding.HeaderBytesV3 + 4*8*2); err == nil {
			clear(buf.Bytes())
			_ = embedding.V3.Seal(buf.Bytes(), "", embedding.Meta{Rows: 4, Cols: 8, DType: embedding.BFloat16})
			buf.Commit()
			_ = c.Put(context.Background(), ns.Key(embedding.Identifier(name)), buf, store.PutOptions{})
			buf.Release()
		}
		fmt.Fprintf(w, `{"ec_transfer_params":{%q:{"item_indices":[0],"metadata":{"image_grid_thw":[1,4,4]}}}}`, name)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// TestDoctorLooksForVLLM: what a relay relies on is held against an Encoder, the Store and the consumers.
func TestDoctorLooksForVLLM(t *testing.T) {
	m := testkit.StartMooncake(t, testkit.MooncakeConfig{})
	a, err := arena.New(arena.Config{Name: "stub", Bytes: 1 << 20, Mapped: true})
	if err != nil {
		t.Fatal(err)
	}
	c, err := mooncake.Open(t.Context(), mooncake.Config{Addr: m.Addr(), Logger: slog.New(slog.DiscardHandler)}, a)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); a.Close() })
	ns := embedding.Namespace{Model: "models/m", Encoder: embedding.VLLMDefaultEncoder, DType: embedding.BFloat16, Protocol: embedding.V3}
	good := vllmconsumer.Start(t, vllmconsumer.Config{Shards: 2})
	rdma := vllmconsumer.Start(t, vllmconsumer.Config{Segment: func(doc map[string]any) { doc["tcp_data_port"] = 0 }})
	f := func(suffix, address string, names []string, status int, wants ...string) {
		t.Helper()
		args := append([]string{"--vllm", "--mooncake-client", m.Addr(), "--encode-servers-urls", stubVLLMEncoder(t, ns, c, a, suffix), "--ec-consumer-zmq-addrs", address}, names...)
		out, got := doctor(t, []string{"AFTERIMAGE_FLEET_TOKEN=secret-of-the-fleet"}, args...) // vLLM's --api-key
		for _, want := range wants {
			if !strings.Contains(out, want) {
				t.Errorf("%q is missing in:\n%s", want, out)
			}
		}
		if got != status {
			t.Errorf("status %d, want %d:\n%s", got, status, out)
		}
	}
	model, admin := []string{"--relay-model", "models/m"}, []string{"--mooncake-admin", m.AdminAddr()}
	const under = "4 x 8 of torch.bfloat16, under embedding@model:models/m@"
	f("", good.Address(), model, exitOK, "ok    encoder", "a grid of [1,4,4]", "ok    names", "warn  automatic names", "warn  namespace", under, "2 shards that can be written to")
	f("-processed", rdma.Address(), model, exitFailure, "fail  names", "mm_processor_kwargs", "ok    keys", "fail  consumer", "MC_FORCE_TCP=1")
	f("", good.Address(), admin, exitOK, "ok    namespace", "it stores under "+ns.String(), "ok    keys", under)
	f("", good.Address(), append(model, admin...), exitOK, "ok    namespace", "ok    keys", under)
	f("", good.Address(), append([]string{"--relay-model", "/other"}, admin...), exitFailure, "ok    namespace", "fail  keys", "[relay] says embedding@model:/other@", `relay.model = "models/m"`)
	f("", good.Address(), nil, exitFailure, "fail  namespace", "--mooncake-admin")
}
