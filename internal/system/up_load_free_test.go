// SPDX-License-Identifier: Apache-2.0

//go:build !race

package system

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// allFree checks that a fleet without requests holds nothing but what its caches keep, and that every slot can be used.
func (u *upRun) allFree(t *testing.T) {
	t.Helper()
	u.idle(t)
	nothing := map[string][]string{
		"gateway": {"afterimage_gateway_requests_running", "afterimage_gateway_fetched_bytes", "afterimage_gateway_admitted_requests",
			"afterimage_gateway_queued_requests"},
		"prefill-0": {"afterimage_prefill_running_requests", "afterimage_prefill_waiting_requests", "afterimage_prefill_kv_cells_used",
			"afterimage_transport_grants_waiting", "afterimage_arena_quarantined_bytes", "afterimage_resolve_reading_bytes"},
		"store": {"afterimage_store_upload_bytes"},
	}
	encoder := []string{"afterimage_encoder_waiting_images", "afterimage_publish_pending_objects", "afterimage_publish_pending_bytes",
		"afterimage_arena_quarantined_bytes", "afterimage_media_decode_bytes", "afterimage_resolve_reading_bytes"}
	nothing["encoder-0"], nothing["encoder-1"] = encoder, encoder
	for role, names := range nothing {
		for _, name := range names {
			eventually(t, role+" has no "+name, func() bool { return u.count(t, role, name, "") == 0 })
		}
	}
	u.explained(t)
	u.slotsFree(t)
	u.idle(t)
}

// explained checks that what arenas hold, and what is on loan, is what caches keep.
func (u *upRun) explained(t *testing.T) {
	t.Helper()
	get := func(role, name string) float64 { return u.count(t, role, name, "") }
	own := func(role string) float64 {
		return get(role, "afterimage_cache_bytes") - get(role, "afterimage_cache_loan_bytes")
	}
	eventually(t, "the P/D's arena holds its residents and nothing else", func() bool {
		return get("prefill-0", "afterimage_arena_bytes") == own("prefill-0")
	})
	eventually(t, "what Encoders lend is what the P/D borrows", func() bool {
		return get("encoder-0", "afterimage_transport_loan_bytes")+get("encoder-1", "afterimage_transport_loan_bytes") ==
			get("prefill-0", "afterimage_transport_loan_bytes")
	})
	for _, e := range []string{"encoder-0", "encoder-1"} {
		eventually(t, e+"'s arena holds its cache and what it lends, and nothing else", func() bool {
			held, kept, lent := get(e, "afterimage_arena_bytes"), own(e), get(e, "afterimage_transport_loan_bytes")
			return held >= max(kept, lent) && held <= kept+lent
		})
	}
	eventually(t, "what the Store lends is what caches keep of it", func() bool {
		kept := -get("prefill-0", "afterimage_transport_loan_bytes") // of the P/D's loans, those of the Encoders
		for _, role := range []string{"encoder-0", "encoder-1", "prefill-0"} {
			kept += get(role, "afterimage_cache_loan_bytes")
		}
		lent := get("store", "afterimage_store_loan_bytes")
		return lent == kept && get("store", "afterimage_store_reading_bytes") <= lent
	})
}

// slotsFree fills every slot of the P/D at the same time, then hangs up.
func (u *upRun) slotsFree(t *testing.T) {
	t.Helper()
	slots := int(u.count(t, "prefill-0", "afterimage_prefill_sequences", ""))
	cells := u.count(t, "prefill-0", "afterimage_prefill_kv_cells", "")
	if slots != soakSlots || cells != soakSlots*soakContext {
		t.Errorf("%d slots and %v cells, want %d and %d", slots, cells, soakSlots, soakSlots*soakContext)
	}
	eventually(t, "requests use all slots at once", func() bool {
		ctx, hangUp := context.WithCancel(t.Context())
		defer hangUp()
		ended := make(chan struct{}, slots)
		for range slots {
			go u.tell(ctx, ended)
		}
		for len(ended) == 0 {
			if u.count(t, "prefill-0", "afterimage_prefill_running_requests", "") == float64(slots) {
				return true
			}
		}
		return false // one was faster than the others' start
	})
	eventually(t, "slots are free when their clients have left", func() bool {
		return u.count(t, "prefill-0", "afterimage_prefill_running_requests", "") == 0 &&
			u.count(t, "prefill-0", "afterimage_prefill_kv_cells_used", "") == 0
	})
}

// tell has an answer streamed that goes on until the context is full.
func (u *upRun) tell(ctx context.Context, ended chan<- struct{}) {
	defer func() { ended <- struct{}{} }()
	body := strings.NewReader(`{"messages":[{"role":"user","content":"Hello"}],"temperature":0,"max_tokens":900,"ignore_eos":true,"stream":true}`)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.url+"/v1/chat/completions", body)
	if err != nil {
		return
	}
	resp, err := u.client.HTTP.Do(req)
	if err != nil {
		return
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, bufio.NewReader(resp.Body))
}

// filesBack waits until each process has no more open files and goroutines than before: connections that nobody uses
// are closed after a while.
func (u *upRun) filesBack(t *testing.T, before fleetSample, patience time.Duration) {
	t.Helper()
	w := u.watch(t)
	for name := range w.pids {
		within(t, patience, name+"'s connections are closed", func() bool {
			now := w.sample(t).roles[name]
			return now.files <= before.roles[name].files && now.goroutines <= before.roles[name].goroutines
		})
	}
}
