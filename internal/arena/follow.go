// SPDX-License-Identifier: Apache-2.0

package arena

import (
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// followPause and followTries bound how long a mapping waits for its lender to populate a step: 10 s
// from the last one. At 1.3 GB/s a step takes 3 ms.
const (
	followPause = 20 * time.Millisecond
	followTries = 500
)

// follow populates the page tables of a mapping, behind the lender, so that readers do not pay for
// first touches. It leaves out what the lender has not touched yet: whoever touches a page first is
// charged for it, and a small container must not pay for a large Store.
func follow(mem []byte, stop <-chan struct{}) {
	timer := time.NewTimer(followPause)
	defer timer.Stop()
	for tries := 0; len(mem) > 0 && tries < followTries; {
		step := mem[:min(populateStep, len(mem))]
		if resident(step) {
			if unix.Madvise(step, unix.MADV_POPULATE_READ) != nil {
				return // kernels before 5.14: pages come at first use
			}
			mem, tries = mem[len(step):], 0
			select {
			case <-stop:
				return
			default:
			}
			continue
		}
		tries++
		timer.Reset(followPause)
		select {
		case <-stop:
			return
		case <-timer.C:
		}
	}
}

// resident reports whether all pages of mem, which starts on one, are in memory.
func resident(mem []byte) bool {
	pages := make([]byte, (len(mem)+os.Getpagesize()-1)/os.Getpagesize())
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&mem[0])), uintptr(len(mem)),
		uintptr(unsafe.Pointer(&pages[0])))
	if errno != 0 {
		return false
	}
	for _, p := range pages {
		if p&1 == 0 {
			return false
		}
	}
	return true
}
