// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"net"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"

	"afterimage/internal/admin"
	"afterimage/internal/testkit"
)

// health runs the command and returns its status and all that it says. Roles of a configuration that are not given are
// where nobody listens.
func health(t *testing.T, roles map[string]string, args ...string) (status int, said string) {
	t.Helper()
	var out strings.Builder
	p := Program{Args: append([]string{"health"}, args...), Stdout: &out, Stderr: &out}
	for _, role := range []string{"GATEWAY", "ENCODER", "PREFILL", "DECODE", "STORE"} {
		at := roles[role]
		if at == "" {
			at = fmt.Sprintf("127.0.0.1:%d", testkit.FreePort(t))
		}
		p.Env = append(p.Env, "AFTERIMAGE_"+role+"_LISTEN="+at)
	}
	return p.Main(t.Context()), out.String()
}

// What the probes of roles say is what the command says, and its status.
func TestHealth(t *testing.T) {
	serve := func(ready, live error) string {
		s := httptest.NewServer(admin.Mux(admin.Role{Ready: func() error { return ready }, Live: func() error { return live }}))
		t.Cleanup(s.Close)
		return strings.TrimPrefix(s.URL, "http://")
	}
	well, unready, dead := serve(nil, nil), serve(errors.New("draining"), nil), serve(errors.New("it hangs"), errors.New("it hangs"))
	f := func(want int, words string, roles map[string]string, args ...string) {
		t.Helper()
		if status, said := health(t, roles, args...); status != want || !strings.Contains(said, words) {
			t.Errorf("%v %q: status %d, want %d with %q:\n%s", roles, args, status, want, words, said)
		}
	}
	f(0, "encoder at http://"+well+": ok", map[string]string{"ENCODER": well})
	f(0, "ok", map[string]string{"STORE": ":" + strings.Split(well, ":")[1]}) // which listens on all addresses
	f(1, "prefill at http://"+unready+": /readyz answers 503 Service Unavailable: draining", map[string]string{"PREFILL": unready})
	f(0, "ok", map[string]string{"PREFILL": unready}, "--live")
	f(1, "/livez answers 503", map[string]string{"GATEWAY": dead}, "--live")
	f(1, "draining", map[string]string{"ENCODER": well, "DECODE": unready})
	f(0, "ok", map[string]string{"ENCODER": well, "DECODE": unready}, "--role", "encoder")
	f(1, "no role listens", nil)
	f(1, "gateway at", nil, "--role", "gateway")
	f(0, "it at http://"+well+": ok", nil, "--url", "http://"+well+"/")
	f(2, "--url nowhere: not the address of a role;", nil, "--url", "nowhere")
	f(2, "--role: ", nil, "--url", "http://"+well, "--role", "store")
	f(2, "--timeout", nil, "--timeout", "0s")
	f(2, "no such file", nil, "--config", "/does/not/exist")
}

// A role that listens on IPv6, on all addresses or on the loopback's alone, is found where its configuration has it.
func TestHealthIPv6(t *testing.T) {
	f := func(host, dialed string) {
		t.Helper()
		ln, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
		if errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT) {
			t.Skipf("this host has no IPv6: %v", err)
		}
		if err != nil {
			t.Fatal(err)
		}
		s := httptest.NewUnstartedServer(admin.Mux(admin.Role{}))
		s.Listener.Close()
		s.Listener = ln
		s.Start()
		defer s.Close()
		_, port, _ := net.SplitHostPort(ln.Addr().String())
		at, want := net.JoinHostPort(host, port), "encoder at http://"+net.JoinHostPort(dialed, port)+": ok\n"
		if status, said := health(t, map[string]string{"ENCODER": at}, "--role", "encoder"); status != 0 || said != want {
			t.Errorf("a role on %s: status %d and %q, want 0 and %q", at, status, said, want)
		}
		if status, said := health(t, nil, "--url", "http://"+net.JoinHostPort(dialed, port)); status != 0 {
			t.Errorf("--url of a role on %s: status %d: %s", at, status, said)
		}
	}
	f("::1", "::1") // first: it tells whether there is IPv6
	f("::", "127.0.0.1")
}
