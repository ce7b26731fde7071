// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
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
	f(0, "ok", map[string]string{"STORE": "[::]:" + strings.Split(well, ":")[1]})
	f(1, "encoder at http://[::1]:1: ", map[string]string{"ENCODER": "[::1]:1"}, "--role", "encoder")
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
