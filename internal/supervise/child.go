// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// Readiness is asked for at this pace: often enough that a start is not slowed down visibly.
const (
	probeEvery   = 25 * time.Millisecond
	probeTimeout = 2 * time.Second
)

// errTimeout: the child did not get ready in time.
var errTimeout = errors.New("not ready in time")

// child is one run of a process.
type child struct {
	cmd    *exec.Cmd
	out    *lineWriter
	notify *os.File      // nil with a foreign program
	exited chan struct{} // closed once the child is reaped; exit is set before
	exit   error
}

// startRole runs the binary of all roles with the two pipes. life is the read end of the lifeline.
func startRole(cfg *Config, life *os.File, out *lineWriter, args, env []string) (*child, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer w.Close()
	cmd := exec.Command(cfg.Binary, args...)
	if cfg.Arg0 != "" {
		cmd.Args[0] = cfg.Arg0
	}
	cmd.ExtraFiles = []*os.File{life, w} // descriptors 3 and 4
	cmd.Env = append(childEnv(os.Environ()), EnvLifeline+"=3", EnvNotify+"=4", EnvRunDir+"="+cfg.RunDir)
	cmd.Env = append(cmd.Env, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c := &child{cmd: cmd, out: out, notify: r, exited: make(chan struct{})}
	if err := c.start(); err != nil {
		r.Close()
		return nil, err
	}
	return c, nil
}

// start runs the child and has it reaped when it ends.
func (c *child) start() error {
	c.cmd.Stdout, c.cmd.Stderr = c.out, c.out
	// Something that a child started may hold its output open after its end.
	c.cmd.WaitDelay = time.Second
	started := make(chan error)
	go func() {
		// The kernel sends a parent-death signal when the thread that started the child ends.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := c.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		c.exit = c.cmd.Wait()
		c.out.Flush()
		close(c.exited)
	}()
	return <-started
}

// childEnv drops this program's own variables: the supervisor has turned them into the children's
// configuration, over which they would win a second time.
func childEnv(env []string) []string {
	var out []string
	for _, kv := range env {
		if !strings.HasPrefix(kv, "AFTERIMAGE_") {
			out = append(out, kv)
		}
	}
	return out
}

// listening waits until the child says where it listens.
func (c *child) listening(ctx context.Context, deadline time.Time) (Listening, error) {
	defer c.notify.Close()
	if err := c.notify.SetReadDeadline(deadline); err != nil {
		return Listening{}, err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.notify.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	var l Listening
	err := json.NewDecoder(io.LimitReader(c.notify, 64<<10)).Decode(&l)
	switch {
	case ctx.Err() != nil:
		return l, ctx.Err()
	case errors.Is(err, os.ErrDeadlineExceeded):
		return l, fmt.Errorf("%w: it does not listen", errTimeout)
	case err != nil:
		// The pipe is closed by a child that ends, or by one that breaks the protocol.
		select {
		case <-c.exited:
			return l, c.exitError()
		case <-ctx.Done():
			return l, ctx.Err()
		case <-time.After(time.Until(deadline)):
			return l, fmt.Errorf("%w: it closed its notify pipe: %w", errTimeout, err)
		}
	}
	if l.Refused != "" {
		return l, finalError{errors.New(l.Refused)}
	}
	l.PID = c.cmd.Process.Pid
	return l, nil
}

// ready waits until /readyz at address answers 200. It reports what stands in the way as it changes.
func (c *child) ready(ctx context.Context, address string, deadline time.Time, report func(reason string)) error {
	client := &http.Client{Timeout: probeTimeout, Transport: &http.Transport{DisableKeepAlives: true}}
	url := "http://" + Dialable(address) + "/readyz"
	return c.poll(ctx, deadline, func() (string, error) {
		reason, err := probe(ctx, client, url)
		if err != nil {
			report(reason)
		}
		return reason, err
	})
}

// poll asks until the answer is no error, at the latest at the deadline, and as long as the child runs.
func (c *child) poll(ctx context.Context, deadline time.Time, ask func() (reason string, err error)) error {
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for {
		reason, err := ask()
		select {
		case <-c.exited: // then it was another that answered
			return c.exitError()
		default:
		}
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%w: %s", errTimeout, reason)
		}
		select {
		case <-c.exited:
			return c.exitError()
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// errNoAnswer: nobody answered a probe in time.
var errNoAnswer = errors.New("no answer")

// probe asks once. With an error it returns why the process is not ready, or not live, in its own words if
// it has any.
func probe(ctx context.Context, client *http.Client, url string) (reason string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err.Error(), err
	}
	res, err := client.Do(req)
	if err != nil {
		return "does not answer " + req.URL.Path, fmt.Errorf("%w: %w", errNoAnswer, err)
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusOK {
		return "", nil
	}
	var body struct {
		Reason string `json:"reason"`
	}
	if json.NewDecoder(io.LimitReader(res.Body, 64<<10)).Decode(&body) != nil || body.Reason == "" {
		body.Reason = req.URL.Path + " says " + res.Status
	}
	return body.Reason, errors.New(body.Reason)
}

// Dialable turns an address that one listens on into one to dial from the same host: where that is every address of
// it, the loopback's of IPv4. A listener on [::] of this program takes both families, and 127.0.0.1 is on hosts whose
// other addresses are all IPv6, while ::1 is missing where IPv6 is switched off.
func Dialable(address string) string {
	host, port, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err == nil && (host == "" || ip != nil && ip.IsUnspecified()) {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return address
}

// stop asks the child to end and, when kill closes, ends it and what it started. It returns once the
// child is reaped.
func (c *child) stop(kill <-chan struct{}) {
	// To a role, SIGTERM says that others stay and must not miss it. Here all stop, its callers first.
	sig := syscall.SIGINT
	if c.notify == nil {
		sig = syscall.SIGTERM
	}
	_ = c.cmd.Process.Signal(sig)
	select {
	case <-c.exited:
		return
	case <-kill:
		c.kill()
	}
}

// kill ends the child's whole process group at once.
func (c *child) kill() {
	_ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL)
	<-c.exited
}

// exitError says how the child ended.
func (c *child) exitError() error {
	if c.exit == nil {
		return endError{errors.New("ended with exit status 0")}
	}
	return endError{fmt.Errorf("ended: %w", c.exit)}
}

// refused says whether the child ended by its own decision, not by a signal. It is asked once exited
// is closed.
func (c *child) refused() bool {
	return c.cmd.ProcessState != nil && c.cmd.ProcessState.Exited()
}
