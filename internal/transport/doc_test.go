// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestWireDoc holds docs/wire.md against the constants.
func TestWireDoc(t *testing.T) {
	b, err := os.ReadFile("../../docs/wire.md")
	if err != nil {
		t.Fatal(err)
	}
	doc := string(b)
	f := func(format string, args ...any) {
		t.Helper()
		if row := fmt.Sprintf(format, args...); !strings.Contains(doc, "\n"+row) {
			t.Errorf("docs/wire.md has no row %q", row)
		}
	}
	f("| %d | 4 | magic %q (%X", offMagic, "AFW1", "AFW1"[:1])
	f("| %d | 2 | wire version, %d |", offVersion, WireVersion)
	f("| %d | 1 | type", offType)
	f("| %d | 1 | status", offStatus)
	f("| %d | 16 | transfer id", offTransfer)
	f("| %d | 4 | attempt", offAttempt)
	f("| %d | 4 | reserved", offReserved)
	f("| %d | 8 | generation", offGeneration)
	f("| %d | 8 | length of the body", offLength)
	f("| %d | 8 | XXH3-64 of the body", offCheck)
	f("| %d | 8 | XXH3-64 of bytes 0..%d", offSum, offSum-1)
	for typ, name := range map[frameType]string{
		frameHello: "hello", frameData: "data", frameAbandon: "abandon", framePing: "ping", framePong: "pong",
		frameReserve: "reserve", frameGrant: "grant", frameComplete: "complete", frameCancel: "cancel",
		frameRefresh: "refresh", frameCredit: "credit", frameRecall: "recall",
	} {
		f("| %d | %s |", typ, name)
	}
	f("| %d | 8 | offset of the object", lendOffset)
	f("| %d | 8 | length of the object", lendLength)
	for s := statusComplete; s <= statusGo; s++ {
		class := "none"
		switch s.class() {
		case ErrGone:
			class = "`ErrGone`"
		case ErrRefused:
			class = "`ErrRefused`"
		case ErrRejected:
			class = "`ErrRejected`"
		}
		row := fmt.Sprintf("\n| %d | %s |", s, s)
		_, rest, ok := strings.Cut(doc, row)
		line, _, _ := strings.Cut(rest, "\n")
		if !ok || !strings.HasSuffix(line, "| "+class+" |") {
			t.Errorf("docs/wire.md: row %q ends in %q, want class %s", row, line, class)
		}
	}
}
