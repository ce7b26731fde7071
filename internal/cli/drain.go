// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"afterimage/internal/admit"
	"afterimage/internal/client"
	"afterimage/internal/control"
)

// drainCmd has a worker leave.
type drainCmd struct {
	Worker  string        `arg:"" name:"role" help:"Name of the worker, as /v1/fleet shows it, e.g. encoder-0."`
	URL     string        `name:"url" env:"AFTERIMAGE_URL" default:"http://127.0.0.1:8000" placeholder:"URL" help:"A gateway of the worker's fleet (default ${default}). [$$AFTERIMAGE_URL]"`
	Key     string        `name:"api-key" placeholder:"KEY" env:"AFTERIMAGE_API_KEY,OPENAI_API_KEY" help:"API key to show to the gateway, an admin's. [$$AFTERIMAGE_API_KEY, $$OPENAI_API_KEY]"`
	Token   string        `name:"fleet-token" placeholder:"TEXT" env:"AFTERIMAGE_FLEET_TOKEN" help:"Token of the fleet to show to the worker. [$$AFTERIMAGE_FLEET_TOKEN]"`
	Timeout time.Duration `default:"10m" placeholder:"TIME" help:"How long the worker waits for requests in work (default ${default}). What is left then is cut off."`
}

// Help is shown below the command's own line.
func (*drainCmd) Help() string {
	return "The worker announces that it takes no more requests, finishes those that it has, stores the embeddings that it has and the " +
		"Store lacks, and ends; no request fails, if there is another worker of its kind. SIGTERM does the same within server.drain. Under 'afterimage up' the role is then started afresh."
}

// drainLook is how often the command looks whether the worker is gone.
const drainLook = 100 * time.Millisecond

// Run is called by the parser.
func (c *drainCmd) Run(a *app) error {
	if c.Timeout < time.Millisecond {
		return usageError{fmt.Errorf("--timeout: %v is too short; give at least 1ms", c.Timeout)}
	}
	if err := gatewayAt(c.URL); err != nil {
		return err
	}
	// Beyond its patience a worker takes some seconds to hand off and to end.
	ctx, cancel := context.WithTimeout(a.ctx, c.Timeout+30*time.Second)
	defer cancel()
	url, boot, err := c.find(ctx)
	if err != nil {
		return err
	}
	body, err := json.Marshal(control.DrainRequest{TimeoutMS: c.Timeout.Milliseconds()})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+control.PathDrain, bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := bearer(c.Token).Do(req)
	if err != nil {
		return fmt.Errorf("%s at %s: %w", c.Worker, url, err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusAccepted {
		return fmt.Errorf("%s at %s does not drain: it answered %s", c.Worker, url, resp.Status)
	}
	fmt.Fprintf(a.Stdout, "%s is draining\n", c.Worker)
	return c.await(ctx, a.Stdout, url, boot)
}

// find asks the gateway where the worker is.
func (c *drainCmd) find(ctx context.Context) (url, boot string, err error) {
	var fleet struct {
		Encoders, Prefills, Decodes []struct {
			URL          string               `json:"url"`
			Announcement control.Announcement `json:"announcement"`
		}
	}
	err = getJSON(ctx, c.Key, strings.TrimRight(c.URL, "/")+"/v1/fleet", &fleet)
	if mend := unanswered(c.URL, err); mend != err {
		return "", "", mend
	}
	if err != nil {
		return "", "", fmt.Errorf("%s: %w; name a gateway with --url", c.URL, err)
	}
	var names []string
	for _, w := range slices.Concat(fleet.Encoders, fleet.Prefills, fleet.Decodes) {
		if w.Announcement.Name == c.Worker {
			return w.URL, w.Announcement.Boot, nil
		}
		names = append(names, w.Announcement.Name)
	}
	return "", "", usageError{fmt.Errorf("no worker %q; the fleet has %s", c.Worker, strings.Join(names, ", "))}
}

// await waits until the worker does not answer, or another process does in its place.
func (c *drainCmd) await(ctx context.Context, out io.Writer, url, boot string) error {
	tick := time.NewTicker(drainLook)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%s has not left: %w", c.Worker, context.Cause(ctx))
		}
		var now control.Announcement
		err := getJSON(ctx, c.Token, url+control.PathWorker, &now)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			_, err := fmt.Fprintf(out, "%s has left\n", c.Worker)
			return err
		case now.Boot != boot:
			_, err := fmt.Fprintf(out, "%s has left, and was started afresh\n", c.Worker)
			return err
		}
	}
}

// bearer returns a client that shows a key or a token; "" shows none.
func bearer(key string) *http.Client {
	return admit.WithToken(&http.Client{Transport: http.DefaultTransport}, key)
}

// getJSON reads a JSON document with a key or a token. The error of another status than 200 is a *client.Error.
func getJSON(ctx context.Context, key, url string, v any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := bearer(key).Do(req)
	if err != nil {
		return errors.Unwrap(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return &client.Error{Status: resp.StatusCode, Message: http.StatusText(resp.StatusCode)}
	}
	return json.NewDecoder(io.LimitReader(resp.Body, 4<<20)).Decode(v)
}
