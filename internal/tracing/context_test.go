// SPDX-License-Identifier: Apache-2.0

package tracing

import (
	"context"
	"net/http"
	"strings"
	"testing"
)

const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

func header(parent string, state ...string) http.Header {
	h := http.Header{HeaderParent: {parent}}
	for _, s := range state {
		h.Add(HeaderState, s)
	}
	return h
}

func TestParse(t *testing.T) {
	f := func(parent string, want string) {
		t.Helper()
		c, ok := Parse(header(parent))
		if ok != (want != "") || ok && c.Parent() != want {
			t.Errorf("%s: %s, %v; want %s", parent, c.Parent(), ok, want)
		}
	}
	f(parent, parent)
	f(parent[:53]+"00", parent[:53]+"00")
	f("cc"+parent[2:], parent)               // a later version is read as this one
	f("cc"+parent[2:]+"-what-comes", parent) // and may go on
	f(parent+"-x", "")                       // this one does not
	f("cc"+parent[2:]+"x", "")               // without a dash it is something else
	f("ff"+parent[2:], "")                   // no version
	f(strings.ToUpper(parent), "")           // hex is lower case
	f("00-"+strings.Repeat("0", 32)+parent[35:], "")
	f(parent[:36]+strings.Repeat("0", 16)+parent[52:], "")
	f(parent[:54], "")
	f("", "")
	f(strings.Replace(parent, "4b", "4g", 1), "")
	f(strings.ReplaceAll(parent, "-", "_"), "")

	c, _ := Parse(header(parent, "a=1", "b=2"))
	if c.State != "a=1,b=2" || !c.Sampled() {
		t.Errorf("state %q, sampled %v", c.State, c.Sampled())
	}
	for _, bad := range []string{strings.Repeat("x", maxState+1), "a=\n1", "é=1"} {
		if c, ok := Parse(header(parent, bad)); c.State != "" || !ok {
			t.Errorf("state %.20q is passed on, or costs the trace", bad)
		}
	}
}

// TestPass: without a Tracer the caller's context goes on as it came; with none there are no headers.
func TestPass(t *testing.T) {
	var none *Tracer
	in, _ := http.NewRequest(http.MethodPost, "http://h/", nil)
	in.Header = header(parent, "a=1")
	ctx, span := none.Serve(in, "request")
	span.Set("a", 1)
	span.Fail("x")
	span.EndWith(nil)
	ctx, inner := none.Start(ctx, "read", Internal)
	inner.End()
	out, _ := http.NewRequestWithContext(ctx, http.MethodPost, "http://h/", nil)
	Pass(out)
	if out.Header.Get(HeaderParent) != parent || out.Header.Get(HeaderState) != "a=1" {
		t.Errorf("passed on: %v", out.Header)
	}
	plain, _ := http.NewRequestWithContext(context.Background(), http.MethodPost, "http://h/", nil)
	ctx, _ = none.Serve(plain, "request")
	out, _ = http.NewRequestWithContext(ctx, http.MethodPost, "http://h/", nil)
	if Pass(out); len(out.Header) != 0 {
		t.Errorf("made up: %v", out.Header)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(parent, "a=1")
	f.Add("cc"+parent[2:]+"-x", "")
	f.Fuzz(func(t *testing.T, parent, state string) {
		c, ok := Parse(header(parent, state))
		if !ok {
			return
		}
		again, ok := Parse(header(c.Parent(), c.State))
		if !ok || again != c {
			t.Errorf("%q, %q: %+v, then %+v", parent, state, c, again)
		}
	})
}
