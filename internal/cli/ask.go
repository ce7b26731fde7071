// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	"afterimage/internal/client"
)

// askCmd asks a gateway.
type askCmd struct {
	Prompt      string        `arg:"" optional:"" placeholder:"PROMPT" help:"The question."`
	Image       []string      `short:"i" sep:"none" placeholder:"FILE" help:"Image file to ask about; give it again for more. They stand before the question, in order."`
	URL         string        `placeholder:"URL" default:"http://127.0.0.1:8000" env:"AFTERIMAGE_URL" help:"Gateway to ask (default ${default}). [$$AFTERIMAGE_URL]"`
	Key         string        `name:"api-key" placeholder:"KEY" env:"AFTERIMAGE_API_KEY,OPENAI_API_KEY" help:"API key to show. [$$AFTERIMAGE_API_KEY, $$OPENAI_API_KEY]"`
	Model       string        `placeholder:"NAME" help:"Model to ask. Empty takes the only one."`
	MaxTokens   int           `placeholder:"N" default:"64" help:"Longest answer in tokens (default ${default})."`
	Temperature float64       `placeholder:"T" default:"0" help:"0 takes the likeliest word each time; more is livelier (default ${default})."`
	Seed        *int64        `placeholder:"N" help:"Repeats an answer of a temperature above 0."`
	Encoder     string        `placeholder:"N" help:"Encoder to use, by number or name, to see reuse happen."`
	Trace       bool          `help:"Print each image's whole way: times of every stage, identifier, Encoder, size."`
	JSON        bool          `help:"Print one JSON object instead of text: text, usage, ttft_ms, items."`
	Timeout     time.Duration `placeholder:"TIME" default:"5m" help:"Time for the whole answer (default ${default})."`
}

// Run is called by the parser.
func (c *askCmd) Run(a *app) error {
	ctx, stop := interruptible(a.ctx, func() {})
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	return runAsk(ctx, c, a.Stdout)
}

// question checks the flags and reads the images.
func (c *askCmd) question() (client.Question, error) {
	q := client.Question{
		Model: c.Model, Text: c.Prompt, MaxTokens: c.MaxTokens, Temperature: c.Temperature, Seed: c.Seed, Encoder: c.Encoder,
	}
	switch {
	case c.Prompt == "":
		return q, usageError{errors.New(`the question is missing; write it behind the flags, e.g. "What is in this picture?"`)}
	case c.MaxTokens < 1:
		return q, usageError{fmt.Errorf("--max-tokens %d: give at least 1", c.MaxTokens)}
	}
	if err := gatewayAt(c.URL); err != nil {
		return q, err
	}
	if c.Timeout < time.Millisecond {
		return q, usageError{fmt.Errorf("--timeout: %v is too short; give at least 1ms", c.Timeout)}
	}
	for _, name := range c.Image {
		b, err := readImage(name)
		if pe, ok := errors.AsType[*os.PathError](err); ok {
			err = pe.Err
		}
		if err != nil {
			return q, usageError{fmt.Errorf("--image %s: %w; give an image file", name, err)}
		}
		q.Images = append(q.Images, b)
	}
	return q, nil
}

// maxAskImage is as much as a gateway takes in one request unless told otherwise; a file that has no end, such as a device, must not fill the
// memory.
const maxAskImage = 64 << 20

// readImage reads a file of any kind, a pipe too.
func readImage(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxAskImage+1))
	if len(b) > maxAskImage {
		return nil, fmt.Errorf("larger than %d bytes", maxAskImage)
	}
	return b, err
}

// runAsk asks and prints.
func runAsk(ctx context.Context, c *askCmd, stdout io.Writer) error {
	q, err := c.question()
	if err != nil {
		return err
	}
	show := func(s string) { fmt.Fprint(stdout, s) }
	if c.JSON {
		show = nil
	}
	api := &client.Client{Base: strings.TrimRight(c.URL, "/"), HTTP: &http.Client{}, Key: c.Key}
	answer, err := api.Ask(ctx, q, show)
	if err != nil {
		if answer.Text != "" && !c.JSON {
			fmt.Fprintln(stdout)
		}
		return unanswered(c.URL, err)
	}
	if c.JSON {
		enc := json.NewEncoder(stdout)
		enc.SetEscapeHTML(false)
		return enc.Encode(answer)
	}
	fmt.Fprintln(stdout)
	return writeTrace(stdout, answer, c.Trace)
}

// writeTrace says where each embedding came from and how long each stage took.
func writeTrace(w io.Writer, a client.Answer, whole bool) error {
	fmt.Fprintln(w)
	for _, it := range a.Items {
		fmt.Fprintf(w, "image %d: source=%s encoder=%s road=%s rows=%d cols=%d bytes=%d ms=%.1f\n",
			it.Index, it.Source, cmp.Or(it.Encoder, "-"), cmp.Or(it.Road, "-"), it.Rows, it.Cols, it.Bytes, it.MS)
	}
	fmt.Fprintf(w, "tokens: %d prompt, %d answer (%s)   first text %.0f ms, whole answer %.0f ms\n",
		a.Usage.PromptTokens, a.Usage.CompletionTokens, a.FinishReason, a.TTFTMS, a.TotalMS)
	if !whole {
		return writeStages(w, a)
	}
	fmt.Fprintf(w, "request %s on %s, attempts: %d\n", a.Request, a.Prefill, a.Attempts)
	for _, it := range a.Items {
		fmt.Fprintf(w, "image %d: identifier %s\n", it.Index, it.Identifier)
	}
	return writeStageTable(w, a.Stages)
}

// writeStages prints the stages on one line.
func writeStages(w io.Writer, a client.Answer) error {
	var parts []string
	before := 0.0
	for _, s := range a.Stages {
		name := s.Name
		if name == "total" {
			name = "answer"
		}
		parts = append(parts, fmt.Sprintf("%s %.1f ms", name, s.MS-before))
		before = s.MS
	}
	_, err := fmt.Fprintln(w, "stages:", strings.Join(parts, ", "))
	return err
}

// gatewayAt checks the value of --url.
func gatewayAt(text string) error { return addressAt(text, "a gateway") }

// addressAt checks the value of a --url at which whose HTTP server is to be.
func addressAt(text, whose string) error {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return usageError{fmt.Errorf("--url %s: not the address of %s; write http://HOST:PORT", text, whose)}
	}
	return nil
}

// unanswered says of a call to a gateway where nobody listens, or that wants another key, what to do about it;
// other errors are as they were.
func unanswered(url string, err error) error {
	if errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("no gateway answers at %s: start one with 'afterimage up', or name another with --url", url)
	}
	told, ok := errors.AsType[*client.Error](err)
	switch {
	case ok && told.Status == http.StatusUnauthorized:
		return fmt.Errorf("%w\ngive a key with --api-key, AFTERIMAGE_API_KEY or OPENAI_API_KEY", err)
	case ok && told.Status == http.StatusForbidden:
		return fmt.Errorf("%w\ngive an admin's key with --api-key, AFTERIMAGE_API_KEY or OPENAI_API_KEY", err)
	}
	return err
}
