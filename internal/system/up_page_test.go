// SPDX-License-Identifier: Apache-2.0

//go:build !race

package system

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"afterimage/internal/client"
	"afterimage/internal/model"
)

// none is what actions return that have nothing to return.
type none = chromedp.Void

// page is a tab of a headless Chromium.
type page struct {
	t   *testing.T
	ctx context.Context
}

// openBrowser starts a Chromium from PATH, or from where `make deps-browser` puts it.
func openBrowser(t *testing.T) *page {
	t.Helper()
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.DisableGPU)
	path := ""
	for _, name := range []string{"chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		usr, err := filepath.Abs(filepath.Join(root, ".cache", "browser", "usr"))
		if err != nil {
			t.Fatal(err)
		}
		path = filepath.Join(usr, "lib", "chromium", "chromium-headless-shell")
		libs, _ := filepath.Glob(filepath.Join(usr, "lib", "*-linux-gnu"))
		for _, dir := range libs {
			libs = append(libs, filepath.Join(dir, "pulseaudio"))
		}
		opts = append(opts, chromedp.Env("LD_LIBRARY_PATH="+strings.Join(libs, ":")))
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("no Chromium: run `make deps-browser` (%v)", err)
	}
	ctx, stop := chromedp.NewExecAllocator(context.Background(), append(opts, chromedp.ExecPath(path))...)
	ctx, closed := chromedp.NewContext(ctx)
	t.Cleanup(func() { closed(); stop() })
	return &page{t: t, ctx: ctx}
}

// do runs actions one after another.
func (p *page) do(actions ...chromedp.Action[none]) {
	p.t.Helper()
	if err := chromedp.Do(p.ctx, actions...); err != nil {
		p.shoot("failed.png")
		p.t.Fatal(err)
	}
}

// eval returns the value of an expression.
func eval[T any](p *page, js string) T {
	p.t.Helper()
	v, err := chromedp.Run(p.ctx, chromedp.Evaluate[T](js))
	if err != nil {
		p.t.Fatal(err)
	}
	return v
}

// shoot takes a picture of the whole page as a file of the test, which `go test -artifacts` keeps.
func (p *page) shoot(name string) {
	p.t.Helper()
	png, err := chromedp.Run(p.ctx, chromedp.FullScreenshot(100))
	if err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(p.t.ArtifactDir(), name), png, 0o644); err != nil {
		p.t.Fatal(err)
	}
}

// becomes waits until an expression is true.
func becomes(js string) chromedp.Action[none] {
	return chromedp.Poll[none](js, chromedp.WithPollingTimeout(time.Minute))
}

// shows waits until an element has a text in it.
func shows(selector, text string) chromedp.Action[none] {
	return becomes(fmt.Sprintf("document.querySelector(%q)?.textContent.includes(%q)", selector, text))
}

func click(selector string) chromedp.Action[none] { return chromedp.Click(chromedp.CSS(selector)) }

// demo sees to it that the demo model is where up finds it.
func demo(t *testing.T) {
	t.Helper()
	needEngine(t)
	if out, errs, status := run(t, "model", "demo", "--out", filepath.Join(".cache", "models", "demo")); status != 0 {
		t.Fatalf("model demo: status %d\n%s%s", status, out, errs)
	}
}

// The page is used as people use it: a picture is chosen and asked for twice. The second answer reuses the
// first one's embedding, and every figure of the page follows.
func TestPageShowsReuse(t *testing.T) {
	demo(t)
	u := startUp(t)
	picture, err := filepath.Abs(filepath.Join(root, "examples", "flag.png"))
	if err != nil {
		t.Fatal(err)
	}
	p := openBrowser(t)
	p.do(chromedp.EmulateViewport(1200, 900), chromedp.Navigate(u.url+"/"),
		shows("#link", "live"), shows("#fleet", "encoder-1"), shows("#fleet", "prefill-0"), shows("#fleet", "full"),
		shows("#requests", "None yet."))
	p.do(chromedp.SetUploadFiles(chromedp.CSS("#file"), []string{picture}), click("#ask"), shows("#asked", "encoded:"),
		shows("#answer", "The colors of the picture are blue, white, and red.")) // as README says
	p.do(click("#ask"), shows("#asked", "resident:"))
	p.do(shows("#requests .chip", "resident"), shows("#totals", "50.0 %"), shows("#totals", "1 encoded"), shows("#images", "36.1 KiB"))
	rows := eval[[]string](p, `[...document.querySelectorAll("#requests details")].map(d => d.querySelector("summary").textContent)`)
	if len(rows) != 2 || !strings.Contains(rows[0], "resident") || !strings.Contains(rows[1], "encoded") {
		t.Errorf("the page lists %q, want the resident one above the encoded one", rows)
	}
	p.do(click("#requests details summary"), shows("#requests details[open]", "prefill-0"))
	if n := eval[int](p, `document.querySelectorAll("img.thumb").length`); n != 0 {
		t.Errorf("the page shows %d pictures without being told to", n)
	}
	p.shoot("desktop-light.png")

	p.do(click("#theme"))
	if theme := eval[string](p, `document.documentElement.dataset.theme`); theme != "dark" {
		t.Errorf("the theme after a click is %q, want dark", theme)
	}
	p.shoot("desktop-dark.png")

	p.do(chromedp.EmulateViewport(390, 844, chromedp.EmulateMobile), chromedp.Reload(), shows("#requests .chip", "resident"))
	if eval[bool](p, `document.documentElement.scrollWidth > document.documentElement.clientWidth`) {
		t.Error("the page is wider than a phone")
	}
	p.shoot("phone-dark.png")
}

// With decode workers the page shows them in the row of the fleet, and with a request who answered it.
func TestPageShowsDecodeWorkers(t *testing.T) {
	u := startUp(t, "--engine", "device", "--device", "encode=1ms", "--decodes", "1")
	u.mustAsk(t, "", picture(t, 32, 32, 1))
	p := openBrowser(t)
	p.do(chromedp.EmulateViewport(1200, 900), chromedp.Navigate(u.url+"/"), becomes(`document.querySelectorAll("#fleet .worker.up").length === 6`))
	columns := eval[[]string](p, `[...document.querySelectorAll("#fleet h3")].map(h => h.textContent)`)
	if got := strings.Join(columns, ", "); got != "gateway, Encoders, Store, Prefill, Decode" {
		t.Errorf("the fleet has the columns %s", got)
	}
	p.do(click("#requests details summary"), becomes(`/prefill-0 and decode-0,.* handed over/.test(document.querySelector("#requests details[open] p").textContent)`))
	p.shoot("decode-light.png")
	back := u.hold(t, "decode-0")
	p.do(becomes(`document.querySelectorAll("#fleet .worker.up").length === 5`), shows("#fleet", "does not answer"))
	back()
	p.do(chromedp.EmulateViewport(390, 844, chromedp.EmulateMobile), chromedp.Reload(), becomes(`document.querySelectorAll("#fleet .worker.up").length === 6`))
	if eval[bool](p, `document.documentElement.scrollWidth > document.documentElement.clientWidth`) {
		t.Error("the page is wider than a phone")
	}
	p.shoot("decode-phone.png")
}

// A page that is open sees a worker die and come back, and says so when the gateway itself is gone.
func TestPageFollowsTheFleet(t *testing.T) {
	u := startUp(t, pair(t, model.InternVL)...)
	p := openBrowser(t)
	const up = `document.querySelectorAll("#fleet .worker.up").length`
	p.do(chromedp.Navigate(u.url+"/"), becomes(up+` === 5`))
	back := u.hold(t, "encoder-1")
	p.do(becomes(up+` === 4`), shows("#fleet", "does not answer"))
	back()
	p.do(becomes(up + ` === 5`))
	back = u.hold(t, "gateway")
	p.do(shows("#link", "no connection"))
	back()
	p.do(shows("#link", "live"), becomes(up+` === 5`))
}

// Where the gateway is told to, the page shows small pictures of what was asked about; else it has none.
func TestPageShowsThumbnails(t *testing.T) {
	u := startUp(t, "--engine", "device", "--device", "encode=1ms", "--dashboard-thumbnails")
	p := openBrowser(t)
	p.do(chromedp.EmulateViewport(1200, 900), chromedp.Navigate(u.url+"/"), shows("#link", "live"))
	for _, name := range []string{"flag.png", "cat.jpg"} {
		file := must[[]byte](t)(os.ReadFile(filepath.Join(root, "examples", name)))
		u.mustAsk(t, "", file)
	}
	const drawn = `[...document.querySelectorAll("%s img.thumb")].filter(i => !i.hidden && i.complete && i.naturalWidth > 0 && i.naturalWidth <= 96).length`
	p.do(becomes(fmt.Sprintf(drawn, "#images")+` === 2`), becomes(fmt.Sprintf(drawn, "#requests summary")+` === 2`))
	p.do(click("#requests details summary"), shows("#requests details[open]", "prefill-0"), becomes(fmt.Sprintf(drawn, "#requests details[open] td")+` === 1`))
	p.shoot("thumbnails-light.png")
	p.do(click("#theme"))
	p.shoot("thumbnails-dark.png")
	p.do(chromedp.EmulateViewport(390, 844, chromedp.EmulateMobile), chromedp.Reload(), becomes(fmt.Sprintf(drawn, "#images")+` === 2`))
	if eval[bool](p, `document.documentElement.scrollWidth > document.documentElement.clientWidth`) {
		t.Error("the page is wider than a phone")
	}
	p.shoot("thumbnails-phone.png")
	logs := strings.NewReplacer("dashboard_thumbnails", "", "dashboard-thumbnails", "").Replace(u.errs.String()) // the key of the configuration is told
	if strings.Contains(logs, "thumbnail") || strings.Contains(logs, "JFIF") {
		t.Errorf("thumbnails are logged:\n%s", logs)
	}
}

// Of each request without pictures the page says why it has none, and of one in work only that it is.
func TestPageWordsRequests(t *testing.T) {
	u := startUp(t, "--engine", "device", "--device", "encode=1h")
	u.mustAsk(t, "")
	if _, err := u.client.Ask(t.Context(), client.Question{Text: "q", Images: [][]byte{[]byte("no picture")}}, nil); err == nil {
		t.Fatal("what is no picture is answered")
	}
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		_, err := u.client.Ask(ctx, client.Question{Text: "q", Images: [][]byte{picture(t, 32, 32, 1)}}, nil)
		left <- err
	}()
	p := openBrowser(t)
	const row = `document.querySelector("#requests details[data-number='%d'] summary .chips")?.textContent === %q`
	p.do(chromedp.EmulateViewport(1200, 900), chromedp.Navigate(u.url+"/"), becomes(fmt.Sprintf(row, 1, "text only")), becomes(fmt.Sprintf(row, 2, "refused")),
		becomes(`document.querySelector("#requests details[data-number='3'] summary .n")?.textContent === "in work"`), becomes(fmt.Sprintf(row, 3, "")),
		becomes(`document.querySelectorAll("#fleet .worker.up").length === 5`), shows("#fleet", "1 running"))
	p.shoot("words.png")
	leave()
	if err := <-left; err == nil {
		t.Error("a picture that takes an hour is answered")
	}
	p.do(becomes(fmt.Sprintf(row, 3, "its client left")))
}
