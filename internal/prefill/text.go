// SPDX-License-Identifier: Apache-2.0

package prefill

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"afterimage/internal/control"
	"afterimage/internal/openai"
)

// serveText answers POST /v1/completions: prompts as they are, without a chat template. As vLLM has it, the text
// of control tokens in them is those tokens.
func (p *Prefill) serveText(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, p.cfg.MaxBodyBytes))
	if err != nil {
		openai.WriteError(w, bodyError("body", err))
		return
	}
	a, err := p.textAnswer(body, start, openai.TextID(r.Header.Get(control.HeaderRequestID)))
	if err != nil {
		p.finish(w, nil, err)
		return
	}
	a.scope = scopeOf(r, a.opts)
	if p.cfg.Decode {
		entry := p.book.take(r.Header.Get(control.HeaderPrepare))
		if entry == nil || entry.adopted == nil || len(a.prompts) != 1 {
			p.finish(w, nil, errNoState())
			return
		}
		defer entry.cancel()
		a.entry = entry
	}
	p.finish(w, a, a.serve(w, r))
}

// textAnswer checks a request and returns its answer, to be run.
func (p *Prefill) textAnswer(body []byte, start time.Time, id string) (*answer, error) {
	req, err := openai.ParseText(body)
	if err != nil {
		return nil, err
	}
	form, err := p.checkSampling(&req.Options)
	if err != nil {
		return nil, err
	}
	if err := req.CheckTokens(p.spec.Vocab); err != nil {
		return nil, err
	}
	var prompts []promptOf
	for i, of := range req.Prompts {
		pr, err := p.textPrompt(of, req.Echo)
		if err == nil {
			err = p.fits(pr.tokens, &req.Options)
		}
		if err != nil {
			return nil, inPrompt(i, len(req.Prompts), err)
		}
		pr.form = form
		prompts = append(prompts, promptOf{pr, pr.tokens})
	}
	a := newAnswer(p, &req.Options, prompts, &prepared{}, start, id)
	a.text = true
	return a, nil
}

// textPrompt tokenises a prompt.
func (p *Prefill) textPrompt(of openai.Prompt, echo bool) (*prompt, error) {
	pr := &prompt{}
	if of.Tokens != nil {
		pr.text(of.Tokens)
	} else {
		// Text that no tokens are long enough for is not worth the time to tokenise it.
		if piece := p.spec.PieceBytes; piece > 0 && len(of.Text)/piece >= p.spec.Context {
			return nil, openai.PromptTooLong(p.spec.Context, len(of.Text)/piece)
		}
		words, err := p.cfg.Engine.Tokenize(of.Text, true)
		if err != nil {
			return nil, openai.BadRequest("prompt", "%v", err)
		}
		pr.text(p.cfg.Engine.Begin())
		pr.text(words)
	}
	switch {
	case pr.tokens == 0:
		return nil, openai.BadRequest("prompt", "prompt has no tokens")
	case echo && of.Tokens == nil:
		pr.echo = of.Text
	case echo:
		var b strings.Builder
		for _, tok := range of.Tokens {
			b.Write(p.cfg.Engine.Piece(tok))
		}
		pr.echo = strings.ToValidUTF8(b.String(), "\uFFFD")
	}
	return pr, nil
}

// inPrompt says which of several prompts an error is about.
func inPrompt(i, n int, err error) error {
	e := *openai.AsError(err)
	if n > 1 {
		e.Message = fmt.Sprintf("prompt[%d]: %s", i, e.Message)
	}
	return &e
}
