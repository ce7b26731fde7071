// SPDX-License-Identifier: Apache-2.0

package vllm

import (
	"bufio"
	"bytes"
	"context"
	"net/http"
	"strings"
)

// process is what a vLLM server is known by: the first model that it lists, and when its process was started, as
// /metrics has it to a hundredth of a second; "" if it does not tell, which a server of several processes does not.
type process struct{ model, start string }

// startMetric is a series that Prometheus' client for Python has of its process, on Linux.
const startMetric = "process_start_time_seconds "

// askProcess asks the server at url what it is.
func askProcess(ctx context.Context, client *http.Client, url string) (p process, err error) {
	if p.model, err = AskModel(ctx, client, url); err != nil {
		return p, err
	}
	// Metrics may be turned off, or be longer than what is read; then nothing is known of the process.
	text, err := fetch(ctx, client, http.MethodGet, url+"/metrics", nil)
	if err != nil {
		return p, ctx.Err()
	}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), startMetric); ok {
			p.start = value
		}
	}
	return p, nil
}
