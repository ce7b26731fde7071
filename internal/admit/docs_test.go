// SPDX-License-Identifier: Apache-2.0

package admit

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The document shows the routes that are not for everybody with a key, as the table has them.
func TestDocumentListsRoutes(t *testing.T) {
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n| route | for | since |\n")
	section, _, _ = strings.Cut(section, "\n\n")
	var want []string
	for _, r := range Routes {
		switch r.Access {
		case Open:
			want = append(want, fmt.Sprintf("| `%s` | anybody | %s |", r.Pattern, r.Why))
		case Admin:
			want = append(want, fmt.Sprintf("| `%s` | admins | %s |", r.Pattern, r.Why))
		}
	}
	got := strings.Split(section, "\n")
	if d := cmp.Diff(want, got[1:]); d != "" {
		t.Errorf("the document differs (-want +got):\n%s", d)
	}
}
