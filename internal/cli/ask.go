// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"io"
)

// askCmd asks a gateway.
type askCmd struct {
	Prompt      string   `arg:"" placeholder:"PROMPT" help:"The question."`
	Image       []string `short:"i" placeholder:"FILE" help:"Image file to ask about; give it again for more. They stand before the question, in order."`
	URL         string   `placeholder:"URL" default:"http://127.0.0.1:8000" env:"AFTERIMAGE_URL" help:"Gateway to ask (default ${default}). [$$AFTERIMAGE_URL]"`
	APIKey      string   `placeholder:"KEY" env:"AFTERIMAGE_API_KEY" help:"Key, if the gateway wants one. [$$AFTERIMAGE_API_KEY]"`
	Model       string   `placeholder:"NAME" help:"Model to ask. Empty takes the first that the gateway has."`
	MaxTokens   int      `placeholder:"N" default:"64" help:"Longest answer in tokens (default ${default})."`
	Temperature float64  `placeholder:"T" default:"0" help:"0 takes the likeliest word each time; more is livelier (default ${default})."`
	Seed        int64    `placeholder:"N" default:"0" help:"Repeats an answer of a temperature above 0 (default ${default})."`
	Encoder     string   `placeholder:"N" help:"Encoder to use, by number or name, to see reuse happen."`
	Trace       bool     `help:"Print each image's whole way: times of every stage, identifier, Encoder, size."`
	JSON        bool     `help:"Print one JSON object instead of text: text, usage, ttft_ms, items."`
}

// Run is called by the parser.
func (c *askCmd) Run(a *app) error {
	ctx, stop := interruptible(a.ctx, func() {})
	defer stop()
	return runAsk(ctx, c, a.Stdout)
}

// runAsk asks and prints.
func runAsk(ctx context.Context, c *askCmd, stdout io.Writer) error {
	return errors.New("ask: not wired")
}
