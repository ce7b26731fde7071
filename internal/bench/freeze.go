// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// freeze stops a process and returns once all of its threads stand still, which the signal alone does not
// promise. SIGCONT lets it go on.
func freeze(ctx context.Context, p *os.Process) error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return pollFor(ctx, startTimeout, fmt.Sprintf("process %d stands still", p.Pid), func() (bool, error) {
		return stopped(p.Pid), nil
	})
}

// stopped says whether no thread of a process runs.
func stopped(pid int) bool {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, file := range files {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		if state := stat[bytes.LastIndexByte(stat, ')')+2]; state != 'T' {
			return false
		}
	}
	return len(files) > 0
}
