// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"afterimage/internal/top"
)

// topCmd shows a fleet in the terminal.
type topCmd struct {
	URL   string        `name:"url" env:"AFTERIMAGE_URL" default:"http://127.0.0.1:8000" placeholder:"URL" help:"Gateway of the fleet (default ${default}). [$$AFTERIMAGE_URL]"`
	Key   string        `name:"api-key" placeholder:"KEY" env:"AFTERIMAGE_API_KEY,OPENAI_API_KEY" help:"API key to show to the gateway, an admin's. [$$AFTERIMAGE_API_KEY, $$OPENAI_API_KEY]"`
	Once  bool          `help:"Print what there is to see at this moment, and exit. It is what happens where standard output is no terminal, too."`
	JSON  bool          `help:"Print JSON: with --once one document, else one a line whenever something changes."`
	Every time.Duration `placeholder:"TIME" default:"1s" help:"Time between two looks where nothing changes (default ${default})."`
}

// Help is shown below the command's own line.
func (*topCmd) Help() string {
	return "Shows the workers of a fleet, how many requests are in work and how long their first byte takes, how much of the pictures was reused, how full the Store is, " +
		"and what the latest requests came to. It lives on the events of the gateway's page and on its metrics, so gateway.dashboard has to be on. q or Ctrl-C ends it. NO_COLOR turns colours off."
}

// topTimeout bounds a single look.
const topTimeout = 10 * time.Second

// Run is called by the parser.
func (c *topCmd) Run(a *app) error {
	if c.Every < 100*time.Millisecond {
		return usageError{fmt.Errorf("--every: %v is too short; give at least 100ms", c.Every)}
	}
	if err := gatewayAt(c.URL); err != nil {
		return err
	}
	ctx, stop := interruptible(a.ctx, func() { os.Exit(exitFailure) })
	defer stop()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	source := top.Source{URL: strings.TrimRight(c.URL, "/"), Key: c.Key, HTTP: &http.Client{Transport: transport}}
	terminal, ok := a.Stdout.(*os.File)
	ok = ok && isTerminal(terminal)
	var err error
	switch {
	case c.Once || !ok && !c.JSON:
		err = c.once(ctx, source, a.Stdout)
	case c.JSON:
		enc := json.NewEncoder(a.Stdout)
		err = source.Watch(ctx, nil, c.Every, func(s top.Snapshot) error { return enc.Encode(s) })
	default:
		err = c.live(ctx, source, terminal, lookupEnv(a.Env, "NO_COLOR") == "")
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		return unanswered(c.URL, err)
	}
	return err
}

// once prints one snapshot.
func (c *topCmd) once(ctx context.Context, source top.Source, w io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, topTimeout)
	defer cancel()
	s, err := source.Once(ctx)
	if err != nil {
		return err
	}
	if c.JSON {
		return json.NewEncoder(w).Encode(s)
	}
	_, err = fmt.Fprintln(w, strings.Join(top.Render(s, 0, 0, top.Palette{}), "\n"))
	return err
}

// live draws until a key or a signal ends it.
func (c *topCmd) live(ctx context.Context, source top.Source, terminal *os.File, colour bool) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer onQuit(stop)()
	resized, done := onResize()
	defer done()
	var palette top.Palette
	if colour {
		palette = top.Colours
	}
	var screen *top.Screen // opened with the first snapshot: an error before it is told on the usual screen
	err := source.Watch(ctx, resized, c.Every, func(s top.Snapshot) (err error) {
		if screen == nil {
			if screen, err = top.OpenScreen(terminal); err != nil {
				return err
			}
		}
		width, height := screen.Size()
		return screen.Draw(top.Render(s, width, height, palette))
	})
	if screen != nil {
		err = errors.Join(err, screen.Close())
	}
	return err
}

// onQuit calls stop when q is typed. The returned function ends that.
func onQuit(stop func()) (end func()) {
	tty, err := os.OpenFile("/dev/tty", os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return func() {} // there is Ctrl-C
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		key := make([]byte, 1)
		for {
			if _, err := tty.Read(key); err != nil {
				return
			}
			if key[0] == 'q' {
				stop()
			}
		}
	}()
	return func() { tty.Close(); <-done }
}

// onResize tells when the terminal has another size.
func onResize() (resized <-chan struct{}, end func()) {
	signals, out, quit, done := make(chan os.Signal, 1), make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
	signal.Notify(signals, syscall.SIGWINCH)
	go func() {
		defer close(done)
		for {
			select {
			case <-signals:
				select {
				case out <- struct{}{}:
				default: // it has not looked since the last one
				}
			case <-quit:
				return
			}
		}
	}()
	return out, func() { signal.Stop(signals); close(quit); <-done }
}

// lookupEnv returns a variable of env, the last of several; "" if there is none.
func lookupEnv(env []string, name string) (value string) {
	for _, kv := range env {
		if n, v, ok := strings.Cut(kv, "="); ok && n == name {
			value = v
		}
	}
	return value
}
