// SPDX-License-Identifier: Apache-2.0

package system

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"afterimage/internal/control"
	"afterimage/internal/embedding"
)

// S04: workers of a fleet with a token do nothing for who has none: nothing is dialled, prepared, encoded or
// dropped. The gateway, which has it, serves.
func TestWorkersAskForTheToken(t *testing.T) {
	f := newFleet(t, func(o *options) { o.token = "of-the-fleet" })
	file := picture(t, 60, 60, 8)
	if got := f.ask(t, "", file, file); got.Items[0].Source != control.SourceEncoded {
		t.Errorf("through the gateway: %+v", got)
	}
	stranger := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	defer stranger.Close()
	dialled := make(chan struct{}, 1)
	go func() {
		if c, err := stranger.Accept(); err == nil {
			c.Close()
			dialled <- struct{}{}
		}
	}()
	grant := control.Grant{Address: stranger.Addr().String(), Transfer: strings.Repeat("ab", 16), Attempt: 1, Generation: 1, Bytes: 1 << 20}
	id := embedding.Identifier(f.key(t, file)[len(f.ns.Key("")):])
	item := control.EncodeItem{Identifier: id, Bytes: len(file), Grants: []control.Grant{grant}}
	body, _, err := control.NewEncodeBody(control.EncodeRequest{Items: []control.EncodeItem{item}}, [][]byte{file})
	if err != nil {
		t.Fatal(err)
	}
	raw := must[[]byte](t)(io.ReadAll(body))
	deliver := must[[]byte](t)(json.Marshal(control.DeliverRequest{Items: []control.EncodeItem{item}}))
	enc := f.encoders[0]
	before := f.encodes(t)
	for _, c := range []struct {
		at                  *node
		method, path, token string
		body                []byte
	}{
		{enc.node, http.MethodPost, control.PathEncode, "", raw}, {enc.node, http.MethodPost, control.PathEncode, "guess", raw},
		{enc.node, http.MethodPost, control.PathDeliver, "", deliver}, {enc.node, http.MethodGet, control.PathWorker, "", nil},
		{enc.node, http.MethodGet, control.PathHeld, "", nil},
		{enc.node, http.MethodPost, control.PathGeometry, "", []byte(`{"sizes":[{"width":1,"height":1}]}`)},
		{f.prefill, http.MethodPost, control.PathPrepare, "", []byte(`{}`)}, {f.prefill, http.MethodPost, control.PathChat, "", []byte(`{"messages":[{"role":"user","content":"hi"}]}`)},
		{f.prefill, http.MethodDelete, control.PathPrepare + "/x", "", nil}, {f.prefill, http.MethodGet, control.PathWorker, "of-the-fleetx", nil},
	} {
		req := must[*http.Request](t)(http.NewRequestWithContext(t.Context(), c.method, c.at.URL+c.path, strings.NewReader(string(c.body))))
		if c.token != "" {
			req.Header.Set("Authorization", "Bearer "+c.token)
		}
		got := readAnswer(t, must[*http.Response](t)(c.at.Client().Do(req)))
		if got.status != 401 || got.header.Get("WWW-Authenticate") != "Bearer" {
			t.Errorf("%s %s with token %q: %d %s", c.method, c.path, c.token, got.status, got.body)
		}
	}
	if n := f.encodes(t) - before; n != 0 {
		t.Errorf("%v encodes for a stranger (%s)", n, id)
	}
	select {
	case <-dialled:
		t.Error("a stranger had an Encoder dial an address of its choice")
	case <-time.After(50 * time.Millisecond):
	}
}

// A gateway with the wrong token says so, and serves nothing.
func TestWrongTokenIsTold(t *testing.T) {
	f := newFleet(t, func(o *options) { o.token = "right"; o.encoders = 1 })
	enc := f.encoders[0]
	enc.fail(func(w http.ResponseWriter, r *http.Request) bool {
		r.Header.Set("Authorization", "Bearer wrong") // as if the gateway sent it
		return false
	})
	eventually(t, "the Encoder is out of service", func() bool { return f.ready() != nil })
	if why := f.seen(t)[0].Why; !strings.Contains(why, "401") || !strings.Contains(why, "fleet.token") {
		t.Errorf("why: %s", why)
	}
}
