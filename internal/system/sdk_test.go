// SPDX-License-Identifier: Apache-2.0

package system

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// sdkPython is the interpreter that has the pinned SDK.
const sdkPython = "../../.cache/venv/bin/python"

// TestOpenAISDK lets the official Python SDK judge the API. What it checks is in testdata/sdk_check.py.
func TestOpenAISDK(t *testing.T) {
	python, err := filepath.Abs(sdkPython)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(python); err != nil {
		t.Fatalf("the OpenAI SDK is not installed (%v): run `make deps-test`", err)
	}
	f := newFleet(t, func(o *options) { o.text, o.maxBody, o.encodeTime = newParrot, 1<<20, 20*time.Millisecond })
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, "-I", "-B", "-X", "utf8", "testdata/sdk_check.py", f.gateway.URL)
	// Nothing of the caller's environment may send the SDK elsewhere: no proxy, key or base URL.
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	report := string(out)
	if err != nil {
		t.Fatalf("%v\n%s", err, report)
	}
	checks := strings.Count(report, "ok    ")
	if !regexp.MustCompile(`(?m)^sdk: \d+ checks with openai \S+, 0 failed$`).MatchString(report) || checks < 20 {
		t.Errorf("%d checks passed, want at least 20 and no other line:\n%s", checks, report)
	}
	if got := f.gateway.count(t, "afterimage_gateway_cut_streams_total", ""); got != 0 {
		t.Errorf("%v streams ended in an error frame", got)
	}
}
