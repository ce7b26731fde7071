// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
	"afterimage/internal/store"
	"afterimage/internal/testkit"
)

// goldenDir holds objects that vLLM's own store client wrote.
const goldenDir = "../../embedding/testdata/store"

// Objects of vLLM go through a real cluster under vLLM's keys and come back to the bit, in all three
// element types, to another client with another arena.
func TestGoldenObjects(t *testing.T) {
	t.Parallel()
	m := testkit.StartMooncake(t, testkit.MooncakeConfig{})
	wa, ra := newArena(t, 4<<20), newArena(t, 4<<20)
	writer := open(t, Config{Addr: m.Addr()}, wa)
	reader := open(t, Config{Addr: m.Addr()}, ra)

	var vectors []struct {
		Key        embedding.Key
		DType      string
		Rows, Cols int
		File       string
	}
	text, err := os.ReadFile(filepath.Join(goldenDir, "objects.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &vectors); err != nil {
		t.Fatal(err)
	}
	dtypes := map[embedding.DType]int{}
	for _, v := range vectors {
		if v.File == "" {
			continue
		}
		obj, err := os.ReadFile(filepath.Join(goldenDir, v.File))
		if err != nil {
			t.Fatal(err)
		}
		dtype, err := embedding.ParseDType(v.DType)
		if err != nil {
			t.Fatal(err)
		}
		putBytes(t, writer, wa, v.Key, obj)
		g := reader.Get(t.Context(), []store.Want{{Key: v.Key, Bytes: len(obj), Exact: true}})[0]
		if g.Err != nil {
			t.Fatalf("%s: %v", v.File, g.Err)
		}
		if !bytes.Equal(g.Buf.Bytes(), obj) {
			t.Errorf("%s: the bytes changed", v.File)
		}
		c := embedding.Contract{Rows: v.Rows, Cols: v.Cols, DType: dtype}
		if _, _, err := embedding.V3.Open(g.Buf.Bytes(), v.Key, c); err != nil {
			t.Errorf("%s: %v", v.File, err)
		}
		g.Buf.Release()
		dtypes[dtype]++
	}
	if len(dtypes) != 3 {
		t.Errorf("vectors cover %d element types, want 3", len(dtypes))
	}
}

func putBytes(t *testing.T, c *Client, a *arena.Arena, k embedding.Key, obj []byte) {
	t.Helper()
	b, err := a.Reserve(len(obj))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Release()
	copy(b.Bytes(), obj)
	b.Commit()
	if err := c.Put(t.Context(), k, b, store.PutOptions{}); err != nil {
		t.Fatal(err)
	}
}
