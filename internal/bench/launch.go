// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// launcher starts processes of this program.
type launcher struct {
	binary string
	env    []string
}

// newLauncher returns a launcher whose processes take nothing of the configuration in env but the
// folder of the engine: what is measured is what the benchmark says.
func newLauncher(binary string, env []string) launcher {
	l := launcher{binary: binary}
	for _, v := range env {
		if !strings.HasPrefix(v, "AFTERIMAGE_") || strings.HasPrefix(v, "AFTERIMAGE_ENGINE_DIR=") {
			l.env = append(l.env, v)
		}
	}
	return l
}

// running is a fleet under up.
type running struct {
	*child
	url        string // of the gateway
	pid        int    // of the gateway
	readyAfter time.Duration
}

// gatewayLine is the gateway's line in the table that up prints.
var gatewayLine = regexp.MustCompile(`^gateway +(\S+:[0-9]+) +([0-9]+) `)

// readyLine is the last line of a start that went well.
const readyLine = "afterimage is ready"

// up starts a fleet of the demo model with two Encoders, one thread per role, on free ports. more are further
// flags.
func (l launcher) up(ctx context.Context, more ...string) (*running, error) {
	f := &running{}
	start := time.Now()
	args := append([]string{"up", "--listen", "127.0.0.1:0", "--encoders", "2", "--threads", "1"}, more...)
	var err error
	f.child, err = startChild("afterimage up", l.binary, args, l.env, func(line string) bool {
		if m := gatewayLine.FindStringSubmatch(line); m != nil {
			f.url = "http://" + m[1]
			f.pid, _ = strconv.Atoi(m[2]) // digits; out of range leaves 0, which is refused below
		}
		f.readyAfter = time.Since(start)
		return line == readyLine
	})
	if err != nil {
		return nil, err
	}
	if err := f.await(ctx); err != nil {
		f.stop()
		return nil, err
	}
	if f.url == "" || f.pid == 0 {
		f.stop()
		return nil, errors.New("bench: the table of afterimage up has no line of a gateway")
	}
	return f, nil
}

// stubs starts the stub workers in a process of their own.
func (l launcher) stubs(ctx context.Context) (*child, stubAddresses, error) {
	return l.stubProcess(ctx, "stub-workers")
}

func (l launcher) stubProcess(ctx context.Context, command string) (*child, stubAddresses, error) {
	var at stubAddresses
	c, err := startChild("stub workers", l.binary, []string{"bench", command}, l.env, func(line string) bool {
		return json.Unmarshal([]byte(line), &at) == nil && at.Encoder != "" && at.Prefill != ""
	})
	if err != nil {
		return nil, at, err
	}
	if err := c.await(ctx); err != nil {
		c.stop()
		return nil, at, err
	}
	return c, at, nil
}

// gateway starts a gateway before workers and waits until it would serve an image.
func (l launcher) gateway(ctx context.Context, workers stubAddresses) (*child, string, error) {
	var said struct{ Msg, Address string }
	args := []string{"gateway", "--listen", "127.0.0.1:0", "--log-format", "json",
		"--encoder", workers.Encoder, "--prefill", workers.Prefill}
	c, err := startChild("afterimage gateway", l.binary, args, l.env, func(line string) bool {
		return json.Unmarshal([]byte(line), &said) == nil && said.Msg == "listening" && said.Address != ""
	})
	if err != nil {
		return nil, "", err
	}
	if err = c.await(ctx); err == nil {
		err = poll(ctx, "the gateway is ready", func() (bool, error) { return answers(ctx, "http://"+said.Address+"/readyz") })
	}
	if err != nil {
		c.stop()
		return nil, "", err
	}
	return c, "http://" + said.Address, nil
}

// answers says whether url answers 200.
func answers(ctx context.Context, url string) (bool, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false, err
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK, nil
}

// pollEvery and pollTimeout pace the questions for what a process does by itself.
const (
	pollEvery   = 5 * time.Millisecond
	pollTimeout = 20 * time.Second
)

// poll asks until ok says yes or fails.
func poll(ctx context.Context, what string, ok func() (bool, error)) error {
	return pollFor(ctx, pollTimeout, what, ok)
}

// pollFor is poll with a time of its own.
func pollFor(ctx context.Context, timeout time.Duration, what string, ok func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("bench: not true within %v: %s", timeout, what))
	defer cancel()
	for {
		if yes, err := ok(); yes || err != nil {
			return err
		}
		if err := pause(ctx, pollEvery); err != nil {
			return err
		}
	}
}

// pause waits for d or the end of ctx.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// residentMiB returns the resident memory of a process, shared pages included.
func residentMiB(pid int) (float64, error) { return statusMiB(pid, "VmRSS") }
