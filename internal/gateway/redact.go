// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"net/http"
	"regexp"

	"afterimage/internal/openai"
)

// addresses matches what tells where a worker is: URLs, IP addresses, and dotted names with a port.
var addresses = regexp.MustCompile(`(?i)\b[a-z][a-z0-9+.-]*://[^\s"',;)]+` +
	`|\[[0-9a-f]*:[0-9a-f]*:[0-9a-f:.]*(%\w+)?\](:\d+)?` +
	`|\b\d{1,3}(\.\d{1,3}){3}\b(:\d+)?` +
	`|\b[\w-]+(\.[\w-]+)+:\d+\b|\blocalhost:\d+\b`)

// redact returns e without the addresses in its message. Causes come from the network and from workers,
// whose words were written for operators: they are logged whole, and clients, who may be strangers, get
// the names of workers and not their places. What the caller did wrong is told as it is: an address in
// it is the caller's own.
func redact(e *openai.Error) *openai.Error {
	if e.Status < http.StatusInternalServerError && e.Status != http.StatusTooManyRequests {
		return e
	}
	own := *e
	own.Message = addresses.ReplaceAllString(e.Message, "[address]")
	return &own
}

// told is the text of err that its client saw.
func told(err error) string {
	if errors.Is(err, context.Canceled) {
		return "the client left"
	}
	return openai.AsError(clientError(err)).Message
}
