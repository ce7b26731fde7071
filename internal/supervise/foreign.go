// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"context"
	"net"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// startForeign runs a program that knows nothing of its supervisor.
func startForeign(cfg *Config, program string, out *lineWriter, args, env []string) (*child, error) {
	cmd := exec.Command(program, args...)
	cmd.Dir = cfg.RunDir // what it writes unasked goes with the run
	cmd.Env = append(childEnv(os.Environ()), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	c := &child{cmd: cmd, out: out, exited: make(chan struct{})}
	if err := c.start(); err != nil {
		return nil, err
	}
	return c, nil
}

// connectable waits until something takes connections at address, where the child was told to listen.
func (c *child) connectable(ctx context.Context, address string, deadline time.Time) error {
	dialer := net.Dialer{Timeout: probeTimeout}
	return c.poll(ctx, deadline, func() (string, error) {
		conn, err := dialer.DialContext(ctx, "tcp", address)
		if err == nil {
			conn.Close()
		}
		return "it takes no connections at " + address, err
	})
}
