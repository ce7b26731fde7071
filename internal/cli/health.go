// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"time"

	"afterimage/internal/config"
	"afterimage/internal/supervise"
)

// healthCmd asks roles of this host whether they can work. Containers have no other program to ask with.
type healthCmd struct {
	Role    string        `placeholder:"ROLE" enum:",store,encoder,prefill,decode,gateway" default:"" help:"Role to ask: store, encoder, prefill, decode or gateway. Without one, each that listens where the configuration has it."`
	URL     string        `placeholder:"URL" help:"Ask there instead, e.g. http://127.0.0.1:8101: for roles whose address is on their command line alone."`
	Live    bool          `help:"Ask only whether it has to be started again, and not whether requests may go there."`
	Timeout time.Duration `placeholder:"TIME" default:"3s" help:"Time for all answers (default ${default})."`
	File    string        `name:"config" short:"c" placeholder:"FILE" env:"AFTERIMAGE_CONFIG" help:"TOML file to read besides the environment. [$$AFTERIMAGE_CONFIG]"`
}

// Help is shown below the command's own line.
func (*healthCmd) Help() string {
	return "Prints a line for each role that it asks. It is what containers and scripts call where nothing else can; load balancers and Kubernetes ask /readyz and /livez themselves."
}

// healthPart is a role and where it listens.
type healthPart struct{ name, url string }

// Run is called by the parser.
func (c *healthCmd) Run(a *app) error {
	if c.Timeout < time.Millisecond {
		return usageError{fmt.Errorf("--timeout: %v is too short; give at least 1ms", c.Timeout)}
	}
	parts, err := c.parts(a)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(a.ctx, c.Timeout)
	defer cancel()
	asked, bad := 0, 0
	for _, p := range parts {
		said := "ok"
		err := c.ask(ctx, p.url)
		if errors.Is(err, syscall.ECONNREFUSED) && len(parts) > 1 {
			continue // it does not run here
		}
		asked++
		if err != nil {
			bad, said = bad+1, err.Error()
		}
		if _, err := fmt.Fprintf(a.Stdout, "%s at %s: %s\n", p.name, p.url, said); err != nil {
			return err
		}
	}
	switch {
	case asked == 0:
		return errors.New("no role listens where the configuration has it; name the address of one with --url")
	case bad > 0:
		return toldError{errors.New("not healthy")} // it stands in the output
	}
	return nil
}

// parts lists what to ask.
func (c *healthCmd) parts(a *app) ([]healthPart, error) {
	if c.URL != "" {
		if c.Role != "" {
			return nil, usageError{errors.New("--role: the address is that of --url; leave one of them out")}
		}
		return []healthPart{{"it", strings.TrimRight(c.URL, "/")}}, addressAt(c.URL, "a role")
	}
	l, err := config.Load(config.Input{File: c.File, Env: a.Env})
	if err != nil {
		return nil, usageError{err}
	}
	cfg := &l.Config
	var out []healthPart
	for _, p := range []healthPart{
		{"gateway", cfg.Gateway.Listen}, {"encoder", cfg.Encoder.Listen}, {"prefill", cfg.Prefill.Listen}, {"decode", cfg.Decode.Listen}, {"store", cfg.Store.Listen},
	} {
		if c.Role == "" || c.Role == p.name {
			out = append(out, healthPart{p.name, "http://" + supervise.Dialable(p.url)})
		}
	}
	return out, nil
}

// ask returns what is wrong at url.
func (c *healthCmd) ask(ctx context.Context, url string) error {
	paths := []string{"/livez", "/readyz"}
	if c.Live {
		paths = paths[:1]
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // through no proxy, as roles ask each other
	for _, path := range paths {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+path, nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if no, ok := errors.AsType[syscall.Errno](err); ok {
			return no
		}
		if err != nil {
			return err
		}
		var said struct{ Reason string }
		_ = json.NewDecoder(io.LimitReader(resp.Body, 64<<10)).Decode(&said) // the status is what counts
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s answers %s: %s", path, resp.Status, said.Reason)
		}
	}
	return nil
}
