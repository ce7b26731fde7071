// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"fmt"
	"strings"
	"testing"

	"afterimage/internal/testkit"
)

// wantFindings checks the last finding, which decides, and the parts on the way to it.
func wantFindings(t *testing.T, got []Finding, level Level, parts, text, mend string) {
	t.Helper()
	var names []string
	for _, f := range got {
		names = append(names, f.Part)
	}
	last := got[len(got)-1]
	if strings.Join(names, " ") != parts || last.Level != level || !strings.Contains(last.Text, text) || !strings.Contains(last.Mend, mend) {
		t.Errorf("findings %+v, want %s of %q with %q, mend %q", got, level, parts, text, mend)
	}
}

func TestProbe(t *testing.T) {
	t.Parallel()
	m := testkit.StartMooncake(t, testkit.MooncakeConfig{SegmentBytes: -1})
	probe := func() []Finding { return Probe(t.Context(), Config{Addr: m.Addr(), Logger: quiet}, Server{}) }
	wantFindings(t, probe(), Fail, "mooncake_client release master memory object", "no space", "--global_segment_size")

	m.AddNode(64 << 20)
	var found []Finding
	eventually(t, "the segment is mounted", func() bool {
		found = probe()
		return found[len(found)-1].Level == Fine
	})
	wantFindings(t, found, Fine, "mooncake_client release master memory object limits", "255 keys", "")
	if !strings.Contains(found[1].Text, "0.3.13") || !strings.Contains(found[3].Text, fmt.Sprint("process ", m.Client.Pid())) {
		t.Errorf("findings %+v, want the release and the process id", found)
	}

	if n, err := CheckAdmin(t.Context(), m.AdminAddr()); n != 0 || err != nil {
		t.Errorf("a probe leaves %d objects behind, %v", n, err)
	}

	wantFindings(t, Probe(t.Context(), Config{Addr: m.MasterAddr(), Logger: quiet}, Server{}), Fail, "release", "no mooncake_client (mooncake_master", "mooncake.client")
	m.Client.Kill()
	wantFindings(t, probe(), Fail, "mooncake_client", "nobody listens", "mooncake_client --protocol=tcp")
}

func TestProbeFails(t *testing.T) {
	f := startFake(t)
	probe := func() []Finding { return Probe(t.Context(), Config{Addr: f.addr, Logger: quiet}, Server{}) }

	f.exist = func([]string) []int64 { return []int64{int64(codeRPCFailed)} }
	wantFindings(t, probe(), Fail, "mooncake_client release master", "master unreachable", "mooncake_master")
	f.exist = nil

	_ = f.lns[1].Close() // nobody takes memory, as from another network namespace
	wantFindings(t, probe(), Fail, "mooncake_client release master memory", "not taken", "hostNetwork")

	f.layout = &putLayouts[2]
	got := probe()
	if got[1].Level != Warn || !strings.Contains(got[1].Text, "0.3.11") {
		t.Errorf("finding %+v, want a warning about 0.3.11", got[1])
	}
	f.layout = nil
	wantFindings(t, probe(), Fail, "release", "none of the known", "0.3.13")

	for addr, text := range map[string]string{"x": `"x"`, "127.0.0.1:99999": "invalid port", "no.such.host.invalid:1": "no.such.host"} {
		wantFindings(t, Probe(t.Context(), Config{Addr: addr}, Server{}), Fail, "configuration", text, "mooncake.client")
	}
}
