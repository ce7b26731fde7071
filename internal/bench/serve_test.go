// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"afterimage/internal/sim"
)

// endpoint is a server of OpenAI's shape that answers with two pieces of text.
func endpoint(t *testing.T, bodies *[]map[string]any) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/models" {
			io.WriteString(w, `{"data":[{"id":"other"}]}`)
			return
		}
		var body map[string]any
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		*bodies = append(*bodies, body) // one at a time: the load is a closed loop of 1
		io.WriteString(w, "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"b\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n")
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func smallTrace(t *testing.T) *sim.Trace {
	t.Helper()
	tr, err := sim.Read(strings.NewReader("time,request,image,text_tokens,output_tokens\n0,a,x,10,3\n0.001,b,x,10,3\n0.001,b,y,10,3\n0.002,c,,5,3\n"), sim.Native, sim.DefaultSizes())
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// TestServe loads an endpoint, and takes the result through its file, a comparison, a page and a trace.
func TestServe(t *testing.T) {
	var bodies []map[string]any
	tr := smallTrace(t)
	s := Serve{URL: endpoint(t, &bodies), Trace: tr, Sides: sim.Mix{{Value: 32, Weight: 1}}, Closed: 1}
	r, err := s.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if r.Model != "other" || r.Summary.OK != 3 || len(bodies) != 3 {
		t.Fatalf("%+v", r.Summary)
	}
	parts := bodies[1]["messages"].([]any)[0].(map[string]any)["content"].([]any)
	if len(parts) != 4 || bodies[1]["model"] != "other" || bodies[1]["max_tokens"] != 3.0 {
		t.Errorf("request b is %v", bodies[1])
	}
	name := filepath.Join(t.TempDir(), "r.json")
	var w bytes.Buffer
	if err := r.Write(&w); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, w.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	again, err := ReadResult(name)
	if err != nil {
		t.Fatal(err)
	}
	if rep := Compare(&r, &again, 0.1); rep.ExitCode() != 0 || len(rep.Rows) < 10 {
		t.Errorf("a result differs from itself: %+v", rep)
	}
	slow := again
	slow.Summary.Seconds *= 2
	if rep := Compare(&again, &slow, 0.1); rep.ExitCode() != 1 {
		t.Errorf("half the rate is no miss: %s", rep.Summary())
	}
	w.Reset()
	if err := Page("x", r.Report(), &r).Write(&w); err != nil || !strings.Contains(w.String(), "Time to first token") {
		t.Errorf("page: %v", err)
	}
	w.Reset()
	if err := r.RecordTrace(&w, tr); err != nil {
		t.Fatal(err)
	}
	if sent, err := sim.Read(&w, sim.Native, sim.DefaultSizes()); err != nil || len(sent.Requests) != 3 || sent.Items() != 3 {
		t.Errorf("the recorded trace: %+v, %v", sent, err)
	}
}

func TestServeRefuses(t *testing.T) {
	s := Serve{URL: "localhost", Trace: smallTrace(t), Sides: sim.Mix{{Value: 32, Weight: 1}}}
	if _, err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "write http://HOST:PORT") {
		t.Errorf("no scheme: %v", err)
	}
	s.URL = "http://127.0.0.1:1"
	if _, err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "is the server up?") {
		t.Errorf("nobody there: %v", err)
	}
	s.Model = "m"
	if _, err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "all 3 requests failed") {
		t.Errorf("nobody there, model named: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Run(ctx); err == nil || !strings.Contains(err.Error(), "interrupted") {
		t.Errorf("interrupted at once: %v", err)
	}
	for _, text := range []string{"", "{}", `{"bench":"smoke"}`, "x"} {
		name := filepath.Join(t.TempDir(), "r.json")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadResult(name); err == nil || !strings.Contains(err.Error(), "no result of bench serve") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestTiledPicturesDiffer(t *testing.T) {
	seen := map[string]bool{}
	for i := range uint64(200) {
		b, err := tiled(16, i)
		if err != nil {
			t.Fatal(err)
		}
		if seen[string(b)] {
			t.Fatalf("picture %d is another's twin", i)
		}
		seen[string(b)] = true
	}
}
