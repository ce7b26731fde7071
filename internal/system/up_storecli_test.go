// SPDX-License-Identifier: Apache-2.0

//go:build !race

package system

import (
	"image/color"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// socketLine is where up says how to look into its Store.
var socketLine = regexp.MustCompile(`(?m)^  \S+ store ls --path (\S+)$`)

// TestUpStoreCommands: with what up prints, its Store can be warmed, looked into, checked, exported, emptied
// and filled again, and then serves a chat without any encode.
func TestUpStoreCommands(t *testing.T) {
	u := startUp(t, "--engine", "device", "--store-ttl", "24h")
	line := socketLine.FindStringSubmatch(u.out.String())
	if line == nil {
		t.Fatal("up does not say where its Store is")
	}
	file := filepath.Join(t.TempDir(), "store.afi")
	tool := func(want string, args ...string) {
		t.Helper()
		stdout, stderr, status := run(t, append([]string{"store"}, args...)...)
		if status != 0 || !strings.Contains(stdout, want) {
			t.Fatalf("store %q: status %d, want %q in\n%s%s", args, status, want, stdout, stderr)
		}
	}
	path := []string{"--path", line[1]}
	var pictures []string
	for i := range 3 {
		pictures = append(pictures, save(t, plain(t, color.RGBA{uint8(40 * i), 100, 200, 255})))
	}
	list := filepath.Join(t.TempDir(), "list")
	if err := os.WriteFile(list, []byte(strings.Join(pictures, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	tool("3 encoded", "warm", "--url", u.url, "@"+list)
	tool("the Store holds 3 of 3", append([]string{"warm", "--url", u.url, "@" + list}, path...)...)
	tool("3 objects", append([]string{"ls"}, path...)...)
	tool(`"ttl_s":86`, append([]string{"ls", "--json"}, path...)...)
	tool("3 good", append([]string{"verify"}, path...)...)
	tool("3 objects in the file", append([]string{"export", file}, path...)...)
	tool("3 objects", append([]string{"rm", "--all", "--yes"}, path...)...)
	tool("3 stored", append([]string{"import", file}, path...)...)
	before := u.count(t, "encoder-0", "afterimage_encoder_encodes_total", "") + u.count(t, "encoder-1", "afterimage_encoder_encodes_total", "")
	for _, encoder := range []string{"0", "1"} {
		u.askCommand(t, "--encoder", encoder, "--image", pictures[0], "what?")
	}
	after := u.count(t, "encoder-0", "afterimage_encoder_encodes_total", "") + u.count(t, "encoder-1", "afterimage_encoder_encodes_total", "")
	if before != 3 || after != 3 {
		t.Errorf("%v encodes before the chats and %v after, want 3", before, after)
	}
}
