// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"log/slog"
	"math"
	"time"
)

// Line is what is logged of one request. It holds nothing of what the client says and what it is answered.
type Line struct {
	Request string // its name
	Path    string
	Model   string // as the client has it
	Tenant  string // "" for none
	Status  int    // as the client saw it
	In      int64  // bytes of the body
	Err     string // as the client saw it
	More    []any  // names and values, in turns
}

// Log writes the line at level info, with what out has sent.
func (l Line) Log(log *slog.Logger, out *Reply) {
	if !log.Enabled(context.Background(), slog.LevelInfo) {
		return
	}
	about := make([]any, 0, 24+len(l.More))
	about = append(about, "request", l.Request, "path", l.Path, "status", l.Status)
	for _, of := range [][2]string{{"model", l.Model}, {"tenant", l.Tenant}} {
		if of[1] != "" {
			about = append(about, of[0], of[1])
		}
	}
	about = append(append(about, l.More...), "bytes_in", l.In, "bytes_out", out.Sent())
	if u, ok := out.Usage(); ok {
		about = append(about, "prompt_tokens", u.PromptTokens, "cached_tokens", u.CachedTokens, "completion_tokens", u.CompletionTokens)
	}
	if l.Err != "" {
		about = append(about, "err", l.Err)
	}
	log.Info("request", about...)
}

// Milliseconds is d in a form for people: three places.
func Milliseconds(d time.Duration) float64 {
	return math.Round(float64(d)/float64(time.Microsecond)) / 1000
}
