// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"

	"afterimage/internal/openai"
)

// addresses matches what tells where a worker is: URLs, IP addresses, and dotted names with a port.
var addresses = regexp.MustCompile(`(?i)\b[a-z][a-z0-9+.-]*://[^\s"',;)]+` +
	`|\[[0-9a-f]*:[0-9a-f]*:[0-9a-f:.]*(%\w+)?\](:\d+)?` +
	`|\b\d{1,3}(\.\d{1,3}){3}\b(:\d+)?` +
	`|\b[\w-]+(\.[\w-]+)+:\d+\b|\blocalhost:\d+\b`)

// Redact returns e without the addresses in its message. Causes come from the network and from workers,
// whose words were written for operators: they are logged whole, and clients, who may be strangers, get
// the names of workers and not their places. What the caller did wrong is told as it is: an address in
// it is the caller's own.
func Redact(e *openai.Error) *openai.Error {
	if e.Status < http.StatusInternalServerError && e.Status != http.StatusTooManyRequests {
		return e
	}
	own := *e
	own.Message = WithoutAddresses(e.Message)
	return &own
}

// WithoutAddresses returns text with every address replaced.
func WithoutAddresses(text string) string { return addresses.ReplaceAllString(text, "[address]") }

// HasAddress says whether text tells where something is.
func HasAddress(text string) bool { return addresses.MatchString(text) }

// Plain drops what net/http and net put in front of every error: method, URL and addresses.
func Plain(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	var op *net.OpError
	switch {
	case !errors.As(err, &op):
		return err
	case op.Op == "dial":
		return fmt.Errorf("cannot connect: %w", op.Err)
	}
	return fmt.Errorf("%s: %w", op.Op, op.Err)
}
