// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"afterimage/internal/embedding"
	"afterimage/internal/store"
	"afterimage/internal/storefile"
)

// contents reads every object of a Store.
func (r *shelfRig) contents(t *testing.T) map[embedding.Key]string {
	t.Helper()
	all, err := r.client.List(t.Context(), "", "", 500)
	if err != nil {
		t.Fatal(err)
	}
	out := map[embedding.Key]string{}
	for _, e := range all {
		got := r.client.Get(t.Context(), []store.Want{{Key: e.Key, Bytes: int(e.Bytes)}})[0]
		if got.Err != nil {
			t.Fatal(got.Err)
		}
		out[e.Key] = e.Tenant + string(got.Buf.Bytes())
		got.Buf.Release()
	}
	return out
}

func same(a, b map[embedding.Key]string) bool {
	for k, v := range a {
		if b[k] != v {
			return false
		}
	}
	return len(a) == len(b)
}

func TestStoreExportAndImport(t *testing.T) {
	from, to := newShelfRig(t, 8<<20), newShelfRig(t, 8<<20)
	from.fill(t, 9)
	file := filepath.Join(t.TempDir(), "all.afi")
	x := decode[exported](t, from.must(t, "export", "--json", file))
	if x.Objects != 9 || x.Kept != 0 || len(x.Bad) != 0 {
		t.Errorf("export: %+v", x)
	}
	if got := decode[imported](t, to.must(t, "import", "--json", file)); got.Stored != 9 || got.File != "whole" {
		t.Errorf("import: %+v", got)
	}
	if !same(from.contents(t), to.contents(t)) {
		t.Error("the two Stores differ")
	}
	if got := decode[imported](t, to.must(t, "import", "--json", file)); got.Stored != 0 || got.Present != 9 {
		t.Errorf("again: %+v", got)
	}
	e := decode[entryJSON](t, to.must(t, "stat", "--json", "05"))
	if e.TTL < 7000 || e.TTL > 7200 || e.Tenant != "acme" {
		t.Errorf("what is not in the object was lost: %+v", e)
	}
}

func TestStoreExportResumes(t *testing.T) {
	r := newShelfRig(t, 8<<20)
	r.fill(t, 5)
	file := filepath.Join(t.TempDir(), "all.afi")
	r.must(t, "export", file)
	if _, stderr, status := r.run(t, "export", file); status != exitUsage || !strings.Contains(stderr, "--resume adds to it") {
		t.Errorf("over a file: status %d, %s", status, stderr)
	}
	st, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		size int64
		kept int
	}{{st.Size(), 5}, {st.Size() - 1, 5}, {st.Size() / 2, -1}, {64, 0}, {0, 0}} {
		if err := os.Truncate(file, c.size); err != nil {
			t.Fatal(err)
		}
		x := decode[exported](t, r.must(t, "export", "--resume", "--json", file))
		if x.Objects != 5 || c.kept >= 0 && x.Kept != c.kept || c.kept < 0 && (x.Kept == 0 || x.Kept == 5) {
			t.Errorf("cut to %d: %+v", c.size, x)
		}
		to := newShelfRig(t, 8<<20)
		to.must(t, "import", file)
		if !same(r.contents(t), to.contents(t)) {
			t.Errorf("cut to %d: the Stores differ", c.size)
		}
	}
	key, obj := soundObject(t, embedding.A1, 77)
	r.put(t, key, obj, store.PutOptions{})
	if x := decode[exported](t, r.must(t, "export", "--resume", "--json", file)); x.Objects != 6 || x.Kept != 5 {
		t.Errorf("with one more: %+v", x)
	}
	if err := os.WriteFile(file, []byte(strings.Repeat("text ", 50)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, stderr, status := r.run(t, "export", "--resume", file); status != exitUsage || !strings.Contains(stderr, "not a file of exported") {
		t.Errorf("over another file: status %d, %s", status, stderr)
	}
	if b, err := os.ReadFile(file); err != nil || !strings.HasPrefix(string(b), "text ") {
		t.Error("another file was overwritten")
	}
	r.must(t, "export", "--force", file)
}

// A list of keys that cannot be read is told before any file is made or replaced.
func TestStoreExportOfNamedKeys(t *testing.T) {
	r := newShelfRig(t, 8<<20)
	r.fill(t, 3)
	key, _ := soundObject(t, embedding.A1, 1)
	dir := t.TempDir()
	list, file := filepath.Join(dir, "keys"), filepath.Join(dir, "all.afi")
	if err := os.WriteFile(list, []byte(string(key)+"\r\n\nnobody\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if x := decode[exported](t, r.must(t, "export", "--json", "--keys", list, file)); x.Objects != 1 || x.Gone != 1 {
		t.Errorf("%+v, want one object and one that is not there", x)
	}
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{list + "?": "no such file", dir: "is a directory"} {
		if _, stderr, status := r.run(t, "export", "--force", "--keys", name, file); status != exitUsage || !strings.Contains(stderr, want) {
			t.Errorf("--keys %s: status %d, %s", name, status, stderr)
		}
		if _, _, status := r.run(t, "export", "--keys", name, file+"2"); status != exitUsage {
			t.Errorf("--keys %s: status %d", name, status)
		}
	}
	if now, err := os.ReadFile(file); err != nil || !bytes.Equal(before, now) {
		t.Error("the file was replaced by nothing")
	}
	if _, err := os.Stat(file + "2"); err == nil {
		t.Error("a file was made")
	}
}

// Of a file that is cut or damaged the good part is taken, and nothing else.
func TestStoreImportOfDamagedFiles(t *testing.T) {
	from := newShelfRig(t, 8<<20)
	from.fill(t, 4)
	file := filepath.Join(t.TempDir(), "all.afi")
	from.must(t, "export", file)
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	f := func(name string, bytes []byte, stored int, complaint string) {
		t.Helper()
		to := newShelfRig(t, 8<<20)
		if err := os.WriteFile(file, bytes, 0o600); err != nil {
			t.Fatal(err)
		}
		stdout, stderr, status := to.run(t, "import", file)
		if status != exitFailure || !strings.Contains(stdout+stderr, complaint) {
			t.Errorf("%s: status %d\n%s%s", name, status, stdout, stderr)
		}
		got := to.contents(t)
		for k, v := range got {
			if from.contents(t)[k] != v {
				t.Errorf("%s: %s came out changed", name, k)
			}
		}
		if len(got) != stored {
			t.Errorf("%s: %d stored, want %d\n%s%s", name, len(got), stored, stdout, stderr)
		}
	}
	f("cut in the index", whole[:len(whole)-10], 4, "cut off")
	f("cut in an object", whole[:len(whole)/3], 1, "cut off")
	f("no such format", []byte("GIF89a"), 0, "not a file of exported")
	flipped := slices.Clone(whole)
	flipped[70] ^= 4 // the first record's lengths
	f("a head", flipped, 3, "1 damaged")
	flipped = slices.Clone(whole)
	flipped[bytes.LastIndex(whole, []byte("IDX1"))-2] ^= 4 // the last object's end
	f("an object", flipped, 3, "1 damaged")
	f("a record that lies", lyingFile(t), 1, "1 foreign")
}

// lyingFile is a file that is whole, and one of whose objects is of another key than it says.
func lyingFile(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := storefile.NewWriter(&b, time.Unix(1_700_000_000, 0))
	if err != nil {
		t.Fatal(err)
	}
	good, obj := soundObject(t, embedding.A1, 1)
	other, _ := soundObject(t, embedding.A1, 2)
	for _, k := range []embedding.Key{other, good} {
		if err := w.Add(storefile.Record{Key: k, Tenant: "acme"}, obj); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// An object that the Store does not take is counted, and the Store's evictions are told.
func TestStoreImportIntoASmallStore(t *testing.T) {
	from := newShelfRig(t, 8<<20)
	from.fill(t, 30)
	file := filepath.Join(t.TempDir(), "all.afi")
	from.must(t, "export", file)
	small := newShelfRig(t, 16<<10)
	if got := decode[imported](t, small.must(t, "import", "--json", file)); got.Stored != 30 || got.Evicted == 0 {
		t.Errorf("import: %+v", got)
	}
	tiny := newShelfRig(t, 3<<10)
	stdout, _, status := tiny.run(t, "import", "--json", file)
	if got := decode[imported](t, stdout); status != exitFailure || got.Refused["too large"] == 0 {
		t.Errorf("status %d, %+v", status, got)
	}
}

// stopper ends a context with the first write, and keeps what is written.
type stopper struct {
	bytes.Buffer
	stop context.CancelFunc
}

func (s *stopper) Write(b []byte) (int, error) {
	s.stop()
	return s.Buffer.Write(b)
}

// An export that is told to stop leaves a file that can be imported up to there.
func TestStoreExportIsStopped(t *testing.T) {
	r := newShelfRig(t, 32<<20)
	for i := range 30 { // 4 MiB, of which the first is written before anybody looks
		key, obj := soundObject(t, embedding.A1, 2000+i)
		r.put(t, key, obj, store.PutOptions{})
	}
	ctx, stop := context.WithCancel(t.Context())
	out, errs := &stopper{stop: stop}, &bytes.Buffer{}
	p := Program{Args: []string{"store", "export", "--path", r.path, "-"}, Stdout: out, Stderr: errs}
	if status := p.Main(ctx); status != exitFailure || !strings.Contains(errs.String(), "context canceled") {
		t.Errorf("status %d, %s", status, errs)
	}
	file := filepath.Join(t.TempDir(), "part.afi")
	if err := os.WriteFile(file, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	to := newShelfRig(t, 32<<20)
	stdout, _, status := to.run(t, "import", "--json", file)
	if got := decode[imported](t, stdout); status != exitFailure || got.Stored < 7 || got.Stored == 30 || !strings.Contains(got.File, "cut off") || len(got.Refused) > 0 {
		t.Errorf("status %d, %+v", status, got)
	}
	if x := decode[exported](t, r.must(t, "export", "--resume", "--json", file)); x.Objects != 30 || x.Kept < 7 {
		t.Errorf("resumed: %+v", x)
	}
}
