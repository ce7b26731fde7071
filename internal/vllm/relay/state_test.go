// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestIDs: ids differ, and whatever may be in use stands in the file before it is.
func TestIDs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "relay.json")
	file, s, err := openState(path)
	if err != nil {
		t.Fatal(err)
	}
	d := newIDs(file, s)
	seen := map[string]bool{}
	written := func() *state {
		s, err := file.read()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	covered := func(id ID, at string) bool {
		for _, o := range written().Open {
			block := id.n / blockIDs
			if o.Epoch == s.Epoch && o.From <= block && block <= o.To && strings.Contains(fmt.Sprint(o.Consumers), at) {
				return true
			}
		}
		return false
	}
	var kept ID
	for n := range 3*blockIDs + 5 {
		at := "a:1"
		if n == 2*blockIDs {
			at = "b:1"
		}
		id, err := d.take(at)
		if err != nil || len(id.Text) != 32 || seen[id.Text] {
			t.Fatalf("id %d: %v, %v", n, id, err)
		}
		seen[id.Text] = true
		if n%512 == 0 && !covered(id, at) {
			t.Fatalf("id %d is not in the file: %+v", n, written().Open)
		}
		if n == blockIDs+1 {
			kept = id
			continue
		}
		d.done(id)
	}
	if !covered(kept, "a:1") {
		t.Errorf("an id in use is not in the file: %+v", written().Open)
	}
	if o := written().Open; len(o) != 1 || o[0].From != 1 || o[0].To != 3 {
		t.Errorf("open is %+v, want blocks 1 to 3", o)
	}
	if _, _, err := openState(path); err == nil || !strings.Contains(err.Error(), "another gateway") {
		t.Errorf("a second process takes the file: %v", err)
	}
	d.done(kept)
	if err := d.close(); err != nil {
		t.Error(err)
	}
	file, s, err = openState(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.close()
	d = newIDs(file, s)
	if id, err := d.take("a:1"); err != nil || seen[id.Text] || len(d.predecessors()) != 0 {
		t.Errorf("after a clean end: %v, %v, %d predecessors", id, err, len(d.predecessors()))
	}
}

// TestSuccessor: what a killed gateway left half-written is given up by the next one, which knows what it knew.
func TestSuccessor(t *testing.T) {
	r := newRig(t)
	r.taught(t)
	p := picture(0, 224, 224)
	id, err := r.ids.take(r.consumer.Address())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range r.consumer.Shards {
		s.Answer(fmt.Appendf(nil, `{"op":"reserve","transfer_id":%q,"mm_hash":%q,"nbytes":%d,"shape":[64,%d],"dtype":"bfloat16"}`, id.Text, p.UUID, 64*cols*2, cols))
		if s.InUse() == 0 {
			t.Fatal("nothing is half-written")
		}
	}
	eventually(t, "what was learned is written down", func() bool { return strings.Contains(string(readFile(t, r.state)), `"cols":32`) })
	killed := r.Relay
	killed.stop()
	killed.bg.Wait()
	killed.ids.file.close() // which a kill does; nothing else of Close
	next := r.open(t)
	r.empty(t)
	b := next.Bring(t.Context(), r.consumer.Address(), []Picture{p})
	if b.Items[0].Result != Written {
		t.Errorf("the next gateway's delivery is %+v", b.Items[0])
	}
	b.End(true)
	eventually(t, "what predecessors left is settled", func() bool { return len(next.ids.predecessors()) == 0 })
	if err := next.Close(); err != nil {
		t.Error(err)
	}
	if s := string(readFile(t, r.state)); strings.Contains(s, `"open"`) {
		t.Errorf("something is left after a clean end: %s", s)
	}
	r.Relay = r.open(t) // for the end of the test
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestBadState: a file that is none is named, and left alone.
func TestBadState(t *testing.T) {
	for _, text := range []string{"", "{}", "nonsense", `{"version":9}`} {
		path := filepath.Join(t.TempDir(), "relay.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := openState(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%q: %v", text, err)
		}
		if got := string(readFile(t, path)); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
	if _, _, err := openState("/proc/nobody/relay.json"); err == nil {
		t.Error("a folder that cannot be made is taken")
	}
}
