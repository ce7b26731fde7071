// SPDX-License-Identifier: Apache-2.0

package system

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"afterimage/internal/control"
	"afterimage/internal/embedding"
	"afterimage/internal/media"
	"afterimage/internal/store"
)

// encode has an Encoder encode a file for a tenant, for the Store alone, and returns its key.
func (f *fleet) encode(t *testing.T, tenant string, file []byte) embedding.Key {
	t.Helper()
	info := must[media.Info](t)(media.Inspect(file, media.DefaultLimits()))
	rules := embedding.Processing{Background: embedding.DefaultBackground}
	id := embedding.NewIdentifier(embedding.DigestOf(file), rules, info.Alpha, nil)
	resp := f.postEncode(t, control.EncodeRequest{Request: "r", Tenant: tenant, Items: []control.EncodeItem{{Identifier: id, Bytes: len(file)}}}, file)
	defer resp.Body.Close()
	var out control.EncodeResponse
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil || len(out.Items) != 1 || out.Items[0].Error != nil {
		t.Fatalf("%s: %+v, %v", resp.Status, out, err)
	}
	return f.ns.Key(id)
}

func (f *fleet) postEncode(t *testing.T, req control.EncodeRequest, files ...[]byte) *http.Response {
	t.Helper()
	body, length, err := control.NewEncodeBody(req, files)
	if err != nil {
		t.Fatal(err)
	}
	call := must[*http.Request](t)(http.NewRequestWithContext(t.Context(), http.MethodPost, f.encoders[0].URL+control.PathEncode, body))
	call.ContentLength = length
	call.Header.Set("Content-Type", control.EncodeContentType)
	return must[*http.Response](t)(http.DefaultClient.Do(call))
}

// TestPublicationsCountForTheirTenant encodes for a tenant until its quota is full: its own oldest leaves the
// Store, and nobody else's.
func TestPublicationsCountForTheirTenant(t *testing.T) {
	const quota = 5000 // bytes; an object of 25 rows has 1.7 KB
	f := newFleet(t, func(o *options) { o.quota = func(string) int64 { return quota } })
	keys := []embedding.Key{f.encode(t, "", picture(t, 140, 140, 1)), f.encode(t, "other", picture(t, 140, 140, 2))}
	for i := range 3 {
		keys = append(keys, f.encode(t, "acme", picture(t, 140, 140, 10+byte(i))))
	}
	s := f.encoders[0].store
	sum := map[string]int64{}
	for _, e := range must[[]store.Entry](t)(s.List(t.Context(), "", "", 100)) {
		sum[e.Tenant] += e.Bytes
	}
	if sum["acme"] == 0 || sum["acme"] > quota || sum["other"] == 0 || sum[""] == 0 {
		t.Errorf("bytes by tenant %v, want some of each and at most %d of acme", sum, quota)
	}
	states := must[[]store.State](t)(s.Exists(t.Context(), keys))
	for i, want := range []bool{true, true, false, true, true} {
		if states[i].Present != want {
			t.Errorf("object %d is there: %v, want %v", i, states[i].Present, want)
		}
	}
}

// TestTenantIsChecked sends a name that no Store takes.
func TestTenantIsChecked(t *testing.T) {
	f := newFleet(t, nil)
	file := picture(t, 56, 56, 1)
	resp := f.postEncode(t, control.EncodeRequest{Tenant: strings.Repeat("x", 257), Items: []control.EncodeItem{{Identifier: "i", Bytes: len(file)}}}, file)
	defer resp.Body.Close()
	var out struct{ Error control.Error }
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil || resp.StatusCode != http.StatusBadRequest || out.Error.Param != "tenant" {
		t.Errorf("%s, %+v, %v; want 400 that names the tenant", resp.Status, out, err)
	}
}
