// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// operations is the document that lists all keys.
const operations = "../../docs/operations.md"

// TestDocumentListsAllKeys compares the tables of keys in the document with the keys, in order, with
// defaults and help. On failure, copy the rows that it prints.
func TestDocumentListsAllKeys(t *testing.T) {
	text, err := os.ReadFile(operations)
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Configuration\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var got, want []string
	for line := range strings.Lines(section) {
		if strings.HasPrefix(line, "| `") {
			got = append(got, strings.TrimSuffix(line, "\n"))
		}
	}
	def := DefaultConfig()
	for _, k := range Keys() {
		want = append(want, keyRow(k, &def))
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s differs from the keys (-want +got):\n%s\nThe rows are:\n%s", operations, d, strings.Join(want, "\n"))
	}
}

// keyRow is the row of the document for one key.
func keyRow(k Key, def *Config) string {
	value := "empty"
	if text := k.Text(def); text != "" {
		value = "`" + text + "`"
	}
	return fmt.Sprintf("| `%s` | %s | %s |", k.Name, value, strings.ReplaceAll(k.Help, "|", `\|`))
}
