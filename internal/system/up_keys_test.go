// SPDX-License-Identifier: Apache-2.0

//go:build !race

package system

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"afterimage/internal/tenant"
)

// keysFile writes a file of keys, which are the names of their tenants; ops is an admin's.
func keysFile(t *testing.T, path string, tenants ...string) {
	t.Helper()
	text := ""
	for _, name := range tenants {
		text += fmt.Sprintf("[[keys]]\ntenant = %q\nadmin = %v\nhash = %q\n", name, name == "ops", tenant.HashOf(name))
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// upAs sends a request to a gateway of up with a key, "" for none, and returns the status.
func (u *upRun) upAs(t *testing.T, key, method, path string) int {
	return statusAs(t, u.url+path, key, method)
}

// statusAs sends a request to anybody with a key, "" for none, and returns the status.
func statusAs(t *testing.T, url, key, method string) int {
	t.Helper()
	req := must[*http.Request](t)(http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(`{"messages":[{"role":"user","content":"hi"}],"max_tokens":2}`)))
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	resp := must[*http.Response](t)((&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req))
	readAll(resp.Body)
	resp.Body.Close()
	return resp.StatusCode
}

// A fleet with keys and a token: who has neither gets nothing, the commands and the page
// work with them, a key that is taken out of the file stops working, and no process shows any of them.
func TestUpWithKeys(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys.toml")
	keysFile(t, file, "acme", "ops")
	const token, operator = "0123456789abcdef-of-the-fleet", "operators-own-key"
	config := filepath.Join(t.TempDir(), "afterimage.toml")
	if err := os.WriteFile(config, fmt.Appendf(nil, "[fleet]\ntoken = %q\n[gateway]\napi_keys = [%q]\n", token, operator), 0o600); err != nil {
		t.Fatal(err)
	}
	u := startUp(t, "--config", config, "--engine", "device", "--device", "encode=1ms,prefill=0ms,decode=1ms", "--keys-file", file)
	const chat = "/v1/chat/completions"
	for key, status := range map[string]int{"": 401, "nobody": 401, "acme": 200, operator: 200, token: 401} {
		if got := u.upAs(t, key, http.MethodPost, chat); got != status {
			t.Errorf("key %q: %d, want %d", key, got, status)
		}
	}
	for key, status := range map[string]int{"": 401, "acme": 403, "ops": 200, operator: 200} {
		if got := u.upAs(t, key, http.MethodGet, "/v1/fleet"); got != status {
			t.Errorf("fleet with key %q: %d, want %d", key, got, status)
		}
	}
	for key, status := range map[string]int{"": 401, operator: 401, token: 200} {
		if got := statusAs(t, "http://"+u.address["encoder-0"]+"/v1/worker", key, http.MethodGet); got != status {
			t.Errorf("Encoder with %q: %d, want %d", key, got, status)
		}
	}
	for key, want := range map[string]int{"": 1, "acme": 0} {
		t.Setenv("OPENAI_API_KEY", key)
		if out, errs, status := run(t, "ask", "--url", u.url, "hello"); status != want {
			t.Errorf("ask with key %q: status %d\n%s%s", key, status, out, errs)
		}
	}
	for name, pid := range u.roles() {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err != nil || strings.Contains(string(line), token) || strings.Contains(string(line), operator) {
			t.Errorf("%s shows a secret in its command line: %q, %v", name, line, err)
		}
	}
	u.checkPageAsksForKey(t)
	keysFile(t, file, "ops", "fresh")
	eventually(t, "the changed file is in force", func() bool { return u.upAs(t, "fresh", http.MethodPost, chat) == 200 })
	if got := u.upAs(t, "acme", http.MethodPost, chat); got != 401 {
		t.Errorf("a key that was taken out: %d", got)
	}
	if said := u.out.String() + u.errs.String(); strings.Contains(said, token) || strings.Contains(said, operator) {
		t.Error("a secret is in the log")
	}
}

// checkPageAsksForKey uses the page with no key, a wrong one, a tenant's and an admin's.
func (u *upRun) checkPageAsksForKey(t *testing.T) {
	t.Helper()
	p := openBrowser(t)
	give := func(key string) {
		p.do(becomes(`!document.getElementById("key").hidden`), chromedp.SendKeys(chromedp.CSS("#key input"), key), click("#key button"))
	}
	p.do(chromedp.EmulateViewport(390, 844, chromedp.EmulateMobile), chromedp.Navigate(u.url+"/"), shows("#link", "asks for an API key"))
	if eval[bool](p, `document.documentElement.scrollWidth > document.documentElement.clientWidth`) {
		t.Error("the page that asks for a key is wider than a phone")
	}
	p.do(chromedp.EmulateViewport(1200, 900))
	give("wrong")
	p.do(shows("#link", "asks for an API key"))
	give("acme")
	p.do(shows("#link", "not look at the fleet"))
	picture, err := filepath.Abs(filepath.Join(root, "examples", "flag.png"))
	if err != nil {
		t.Fatal(err)
	}
	p.do(chromedp.SetUploadFiles(chromedp.CSS("#file"), []string{picture}), click("#ask"), shows("#asked", "encoded:"))
	p.do(chromedp.Reload(), shows("#link", "not look at the fleet")) // the key is still there
	eval[bool](p, `sessionStorage.clear(), true`)
	p.do(chromedp.Reload(), shows("#link", "asks for an API key"))
	give("ops")
	p.do(shows("#link", "live"), shows("#fleet", "encoder-1"), shows("#requests .chip", "encoded"))
}
