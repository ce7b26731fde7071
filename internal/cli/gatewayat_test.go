// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

// Every command that asks a gateway says of a --url that is none what to write, before anything is asked.
func TestNoGatewaysURL(t *testing.T) {
	for _, args := range [][]string{{"ask", "Hello"}, {"trace", "x"}, {"top"}, {"drain", "encoder-0"}, {"store", "warm", "a.png"}} {
		for _, at := range []string{"127.0.0.1:8000", "x", "ftp://x", "http://", "http://x:y"} {
			var errs bytes.Buffer
			status := Program{Args: append(slices.Clip(args), "--url", at), Stdout: &errs, Stderr: &errs}.Main(t.Context())
			if want := "--url " + at + ": not the address of a gateway; write http://HOST:PORT"; status != exitUsage || !strings.Contains(errs.String(), want) {
				t.Errorf("%q --url %s: status %d, %s", args, at, status, &errs)
			}
		}
	}
}
