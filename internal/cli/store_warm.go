// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"time"

	"afterimage/internal/client"
	"afterimage/internal/control"
	"afterimage/internal/embedding"
)

// storeWarmCmd fills the Store through the Encoders of a fleet.
type storeWarmCmd struct {
	Images  []string      `arg:"" placeholder:"IMAGE" help:"Image file, or http: or https: URL. @FILE takes one per line from a file, - from standard input."`
	URL     string        `placeholder:"URL" default:"http://127.0.0.1:8000" env:"AFTERIMAGE_URL" help:"Gateway of the fleet (default ${default}). [$$AFTERIMAGE_URL]"`
	Key     string        `name:"api-key" placeholder:"KEY" env:"AFTERIMAGE_API_KEY,OPENAI_API_KEY" help:"API key to show: the embeddings are those of its tenant. [$$AFTERIMAGE_API_KEY, $$OPENAI_API_KEY]"`
	Model   string        `placeholder:"NAME" help:"Model to encode for. Empty takes the only one."`
	Jobs    int           `short:"j" placeholder:"N" default:"4" help:"Images on their way at once (default ${default})."`
	Retries int           `placeholder:"N" default:"5" help:"Times that an image is tried again while the fleet is busy or not ready (default ${default})."`
	Timeout time.Duration `placeholder:"TIME" default:"2m" help:"Time for one image (default ${default})."`
	storeAt `embed:""`
}

// Help is shown below the command's own line.
func (*storeWarmCmd) Help() string {
	return "Images whose embedding is in the Store are not encoded again, so a run that was cut off is repeated to be " +
		"completed. Where the Store is on this host, the embeddings are looked for in it at the end."
}

// warmJSON is the line of one image.
type warmJSON struct {
	Image string `json:"image"`
	control.WarmItem
}

// warmed is the outcome of a run.
type warmed struct {
	Images  int            `json:"images"`
	Sources map[string]int `json:"sources"` // encoded, store, local
	Failed  int            `json:"failed"`
	InStore *int           `json:"in_store,omitempty"` // of those that did not fail; absent when nobody looked
	Seconds float64        `json:"seconds"`

	keys []embedding.Key
}

// Run is called by the parser.
func (c *storeWarmCmd) Run(a *app) error {
	if err := gatewayAt(c.URL); err != nil {
		return err
	}
	switch {
	case c.Jobs < 1 || c.Jobs > 256:
		return usageError{fmt.Errorf("--jobs %d: give 1 to 256", c.Jobs)}
	case c.Retries < 0:
		return usageError{fmt.Errorf("--retries %d: give at least 0", c.Retries)}
	}
	images, err := imageList(c.Images)
	if err != nil {
		return err
	}
	ctx, stop := interruptible(a.ctx, func() {})
	defer stop()
	begun := time.Now()
	w, err := c.warm(ctx, a, images)
	w.Seconds = time.Since(begun).Seconds()
	if err == nil {
		w.InStore = c.look(ctx, a, w.keys)
	}
	if perr := w.print(a.Stdout, c.JSON); err == nil {
		err = perr
	}
	if err == nil && w.Failed > 0 {
		err = fmt.Errorf("%d of %d images failed", w.Failed, w.Images)
	}
	return err
}

// warm sends the images, several at once, and reports each as it is done.
func (c *storeWarmCmd) warm(ctx context.Context, a *app, images []string) (warmed, error) {
	w := warmed{Sources: map[string]int{}}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	m := newMeter(a.Stderr, "warm")
	for it := range c.send(ctx, images, cancel) {
		if ctx.Err() != nil {
			continue // cut off, which says nothing about the image
		}
		w.note(a, m, c.JSON, it)
		m.at(int64(w.Images), int64(len(images)), fmt.Sprintf("%d encoded, %d failed", w.Sources[string(control.SourceEncoded)], w.Failed))
	}
	m.end()
	return w, context.Cause(ctx)
}

// send starts the senders. The channel, which has to be read to its end, is closed when all images are
// through or ctx has ended.
func (c *storeWarmCmd) send(ctx context.Context, images []string, end context.CancelCauseFunc) <-chan warmJSON {
	api := &client.Client{Base: strings.TrimRight(c.URL, "/"), HTTP: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: c.Jobs}}, Key: c.Key}
	work, done := make(chan string), make(chan warmJSON)
	var wg sync.WaitGroup
	for range min(c.Jobs, len(images)) {
		wg.Go(func() {
			for name := range work {
				done <- warmJSON{name, c.one(ctx, api, name, end)}
			}
		})
	}
	go func() {
		defer close(done)
		defer api.HTTP.CloseIdleConnections()
		defer wg.Wait()
		defer close(work)
		for _, name := range images {
			select {
			case work <- name:
			case <-ctx.Done():
				return
			}
		}
	}()
	return done
}

// note counts and shows one image.
func (w *warmed) note(a *app, m *meter, asJSON bool, it warmJSON) {
	w.Images++
	if it.Error == nil {
		w.Sources[string(it.Source)]++
		w.keys = append(w.keys, it.Key)
	} else {
		w.Failed++
	}
	switch {
	case asJSON:
		_ = printJSON(a.Stdout, it) // a reader that left shows when the summary is printed
	case it.Error != nil:
		m.end()
		fmt.Fprintf(a.Stderr, "warm: %s: %s\n", it.Image, it.Error.Message)
	}
}

// one brings one image through. The fleet not being there ends the whole run.
func (c *storeWarmCmd) one(ctx context.Context, api *client.Client, name string, end context.CancelCauseFunc) control.WarmItem {
	address, err := addressOf(name)
	if err != nil {
		return control.WarmItem{Error: &control.Error{Message: err.Error()}}
	}
	for try := 0; ; try++ {
		it, err := c.call(ctx, api, address)
		if errors.Is(err, syscall.ECONNREFUSED) {
			end(unanswered(c.URL, err))
		}
		if err != nil {
			it.Error = &control.Error{Message: err.Error()}
			if told, ok := errors.AsType[*client.Error](err); ok {
				it.Error.Status = told.Status
			}
		}
		if it.Error == nil || try == c.Retries || !again(it.Error.Status) {
			return it
		}
		select {
		case <-time.After(time.Second): // what the gateway says in Retry-After
		case <-ctx.Done():
			return it
		}
	}
}

// again says whether a refusal is about the moment and not about the image.
func again(status int) bool {
	return status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable
}

func (c *storeWarmCmd) call(ctx context.Context, api *client.Client, address string) (control.WarmItem, error) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	items, err := api.Warm(ctx, c.Model, []string{address})
	if err != nil {
		return control.WarmItem{}, err
	}
	return items[0], nil
}

// look counts the embeddings that are in the Store, if that is on this host.
func (c *storeWarmCmd) look(ctx context.Context, a *app, keys []embedding.Key) *int {
	t, err := c.open(ctx, a)
	if err != nil {
		return nil
	}
	states, err := t.Exists(ctx, keys)
	if errors.Join(err, t.close()) != nil {
		return nil
	}
	n := 0
	for _, s := range states {
		if s.Present {
			n++
		}
	}
	return &n
}

func (w *warmed) print(out io.Writer, asJSON bool) error {
	if asJSON {
		return printJSON(out, map[string]*warmed{"summary": w})
	}
	_, err := fmt.Fprintf(out, "warm: %s in %.1f s: %d encoded, %d in the Store before, %d in an Encoder's cache, %d failed\n",
		counted(w.Images, "image"), w.Seconds, w.Sources[string(control.SourceEncoded)], w.Sources[string(control.SourceStore)],
		w.Sources[string(control.SourceLocal)], w.Failed)
	if err == nil && w.InStore != nil {
		_, err = fmt.Fprintf(out, "warm: the Store holds %d of %d\n", *w.InStore, w.Images-w.Failed)
	}
	return err
}
