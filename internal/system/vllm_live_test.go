// SPDX-License-Identifier: Apache-2.0

//go:build vllm && !race

package system

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"image/color"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
	"afterimage/internal/media"
	"afterimage/internal/model"
	"afterimage/internal/publish"
	"afterimage/internal/resolve"
	"afterimage/internal/store/mooncake"
	"afterimage/internal/testkit"
)

// These tests hold objects, keys and identifiers against vLLM's own code. `make test-vllm` runs them, after
// `make peers`. What is real: vLLM's engine configuration, media loader, hasher, resolver, publisher and Store
// client, from its wheel; Mooncake's master, mooncake_client and Python client; all of this program. A vLLM engine
// runs in TestVLLMEngine only; elsewhere vLLM's values are random numbers.

const vllmPrefix = "live"

// vllmSide is the process with vLLM's code in it.
type vllmSide struct {
	model string // as vLLM was given it
	in    *json.Encoder
	out   *bufio.Scanner
}

// vllmAsk is a question to vLLM's side.
type vllmAsk struct {
	Op       string   `json:"op"`
	DType    string   `json:"dtype"`
	IDs      []string `json:"ids,omitempty"`
	Rows     int      `json:"rows,omitempty"`
	Cols     int      `json:"cols,omitempty"`
	Seed     int      `json:"seed,omitempty"`
	Pictures [][]byte `json:"pictures,omitempty"`
}

// vllmAnswer is its answer.
type vllmAnswer struct {
	Namespace   string
	Identifiers []embedding.Identifier
	Sums        []string
	Error       string
}

// startVLLMSide joins the cluster of master as vLLM does.
func startVLLMSide(t *testing.T, master string) *vllmSide {
	t.Helper()
	root := must[string](t)(filepath.Abs("../.."))
	peers := filepath.Join(root, ".cache", "peers")
	if _, err := os.Stat(filepath.Join(peers, "venv", "installed.txt")); err != nil {
		t.Fatalf("no vLLM in %s: run `make peers` (%v)", peers, err)
	}
	file := filepath.Join(t.TempDir(), "mooncake.json")
	config := `{"mode": "standalone-store", "metadata_server": "P2PHANDSHAKE", "master_server_address": "` + master +
		`", "protocol": "tcp", "device_name": "", "global_segment_size": 0, "local_buffer_size": "64mb"}`
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &vllmSide{model: filepath.Join(peers, "models", "tiny-vl")}
	cmd := exec.Command("bash", "-c", `source "$0"/scripts/peers_env.sh && exec python -W ignore "$@"`, root,
		filepath.Join(root, "internal", "system", "testdata", "vllm_live.py"), s.model, vllmPrefix)
	cmd.Env = append(os.Environ(), "MOONCAKE_CONFIG_PATH="+file, "VLLM_LOGGING_LEVEL=WARNING")
	log := must[*os.File](t)(os.Create(filepath.Join(t.TempDir(), "vllm.log")))
	cmd.Stderr = log
	in := must[io.WriteCloser](t)(cmd.StdinPipe())
	s.in = json.NewEncoder(in)
	s.out = bufio.NewScanner(must[io.ReadCloser](t)(cmd.StdoutPipe()))
	s.out.Buffer(nil, 1<<20)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		err := cmd.Wait()
		if t.Failed() || err != nil {
			said, _ := os.ReadFile(log.Name())
			t.Errorf("vLLM's side: %v; it said:\n%s", err, said)
		}
		log.Close()
	})
	return s
}

func (s *vllmSide) ask(t *testing.T, a vllmAsk) vllmAnswer {
	t.Helper()
	if err := s.in.Encode(a); err != nil {
		t.Fatalf("vLLM's side: %v", err)
	}
	if !s.out.Scan() {
		t.Fatalf("vLLM's side ended (%v)", s.out.Err())
	}
	var out vllmAnswer
	if err := json.Unmarshal(s.out.Bytes(), &out); err != nil || out.Error != "" {
		t.Fatalf("vLLM's side, %s: %s%v", a.Op, out.Error, err)
	}
	return out
}

// naming checks that both sides build the same keys: the namespace, and identifiers of files of many kinds.
func (s *vllmSide) naming(t *testing.T, d string, ns embedding.Namespace) {
	t.Helper()
	ask := vllmAsk{Op: "names", DType: d}
	files := must[[]string](t)(filepath.Glob("../media/testdata/modes/*.*g"))
	for _, name := range files {
		ask.Pictures = append(ask.Pictures, must[[]byte](t)(os.ReadFile(name)))
	}
	got := s.ask(t, ask)
	if got.Namespace != ns.String() {
		t.Errorf("vLLM's namespace is %s, ours %s", got.Namespace, ns)
	}
	same := 0
	for i, theirs := range got.Identifiers {
		info, err := media.Inspect(ask.Pictures[i], media.DefaultLimits())
		if err != nil || theirs == "" {
			continue // one of both does not take it
		}
		if ours := (embedding.VLLMNaming{Model: s.model}).Identifier(ask.Pictures[i], info.RGB); ours != theirs {
			t.Errorf("%s: vLLM's identifier is %s, ours %s", filepath.Base(files[i]), theirs, ours)
		}
		same++
	}
	if same < 10 {
		t.Errorf("only %d pictures were compared", same)
	}
	t.Logf("%s: namespace and %d identifiers are vLLM's", d, same)
}

// finite returns n random bytes of which every d is finite; all other bit patterns occur, -0 and subnormals too.
func finite(random *rand.Rand, d embedding.DType, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(random.Uint32())
	}
	le := binary.LittleEndian
	switch d {
	case embedding.Float32:
		for i := 0; i < n; i += 4 {
			if v := le.Uint32(b[i:]); v&0x7f800000 == 0x7f800000 {
				le.PutUint32(b[i:], v&^0x00800000)
			}
		}
	case embedding.Float16, embedding.BFloat16:
		exponent, low := uint16(0x7c00), uint16(0x0400)
		if d == embedding.BFloat16 {
			exponent, low = 0x7f80, 0x0080
		}
		for i := 0; i < n; i += 2 {
			if v := le.Uint16(b[i:]); v&exponent == exponent {
				le.PutUint16(b[i:], v&^low)
			}
		}
	}
	return b
}

func sumOf(b []byte) string { s := sha256.Sum256(b); return hex.EncodeToString(s[:]) }

// TestVLLMCrossRead has each side read what the other one stored in a real Mooncake cluster, bit by bit.
func TestVLLMCrossRead(t *testing.T) {
	m := testkit.StartMooncake(t, testkit.MooncakeConfig{SegmentBytes: 512 << 20})
	a := must[*arena.Arena](t)(arena.New(arena.Config{Name: "live", Bytes: 256 << 20}))
	t.Cleanup(func() { a.Close() })
	c := must[*mooncake.Client](t)(mooncake.Open(t.Context(), mooncake.Config{Addr: m.Addr(), Logger: quiet}, a))
	t.Cleanup(func() { c.Close() })
	s := startVLLMSide(t, m.MasterAddr())
	random := rand.New(rand.NewPCG(1, 2))
	for _, d := range []embedding.DType{embedding.Float16, embedding.BFloat16, embedding.Float32} {
		name := d.String()[len("torch."):]
		t.Run(name, func(t *testing.T) {
			ns := embedding.Namespace{Prefix: vllmPrefix, Model: s.model, Encoder: embedding.VLLMDefaultEncoder, DType: d, Protocol: embedding.V3}
			s.naming(t, name, ns)
			for i, shape := range [][2]int{{1, 1}, {3, 5}, {64, 128}, {256, 1024}, {4096, 2048}} {
				rows, cols := shape[0], shape[1]
				ids := []string{fmt.Sprintf("%s-%d-a", name, i), fmt.Sprintf("%s-%d-b", name, i)}
				ask := vllmAsk{DType: name, IDs: ids, Rows: rows, Cols: cols}

				ask.Op = "resolve"
				if got := s.ask(t, ask).Sums; !slices.Equal(got, []string{"", ""}) {
					t.Fatalf("%v: vLLM reads %v before anything is there", shape, got)
				}
				ours := publishOurs(t, c, a, ns, ids, rows, cols, random)
				if got := s.ask(t, ask).Sums; !slices.Equal(got, ours) {
					t.Errorf("%v: vLLM reads %v, want our %v", shape, got, ours)
				}
				ask.Op, ask.Seed = "publish", i+1 // what is there stays
				s.ask(t, ask)
				if got := resolveOurs(t, c, ns, ids, rows, cols); !slices.Equal(got, ours) {
					t.Errorf("%v: we read %v after vLLM published under the same keys, want our %v", shape, got, ours)
				}
				for j := range ids {
					ids[j] += "-vllm"
				}
				theirs := s.ask(t, ask).Sums
				if got := resolveOurs(t, c, ns, ids, rows, cols); !slices.Equal(got, theirs) {
					t.Errorf("%v: we read %v, want vLLM's %v", shape, got, theirs)
				}
			}
			t.Logf("%s: 10 objects of ours read by vLLM, 10 of vLLM's read by us, bit-exact", name)
		})
	}
}

// publishOurs publishes random objects as an Encoder does, and returns the sums of their values.
func publishOurs(t *testing.T, c *mooncake.Client, a *arena.Arena, ns embedding.Namespace, ids []string, rows, cols int, random *rand.Rand) []string {
	t.Helper()
	p := must[*publish.Publisher](t)(publish.New(publish.Config{Store: c, Protocol: embedding.V3, Logger: quiet}))
	meta := embedding.Meta{Rows: rows, Cols: cols, DType: ns.DType}
	var sums []string
	for _, id := range ids {
		key := ns.Key(embedding.Identifier(id))
		buf := must[*arena.Buf](t)(a.Reserve(embedding.HeaderBytesV3 + meta.PayloadBytes()))
		values := finite(random, ns.DType, meta.PayloadBytes())
		sums = append(sums, sumOf(values))
		copy(buf.Bytes()[embedding.HeaderBytesV3:], values)
		if err := embedding.V3.Seal(buf.Bytes(), key, meta); err != nil {
			t.Fatal(err)
		}
		buf.Commit()
		p.Publish(key, buf, meta)
		buf.Release()
	}
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	return sums
}

// resolveOurs reads objects as an Encoder does, and returns the sums of their values.
func resolveOurs(t *testing.T, c *mooncake.Client, ns embedding.Namespace, ids []string, rows, cols int) []string {
	t.Helper()
	r := must[*resolve.Resolver](t)(resolve.New(resolve.Config{Store: c, Protocol: embedding.V3, Logger: quiet}))
	var items []resolve.Item
	for _, id := range ids {
		contract := embedding.Contract{Rows: rows, Cols: cols, DType: ns.DType}
		items = append(items, resolve.Item{Key: ns.Key(embedding.Identifier(id)), Contract: contract})
	}
	var sums []string
	for i, got := range r.Resolve(t.Context(), items) {
		if got.Buf == nil {
			t.Fatalf("%s: %s: %v", ids[i], got.Reason, got.Err)
		}
		sums = append(sums, sumOf(got.Buf.Bytes()[embedding.HeaderBytesV3:]))
		got.Buf.Release()
	}
	return sums
}

// TestVLLMReadsEncoder: what a real Encoder of `up` publishes, vLLM's code finds under its own name of the
// picture.
func TestVLLMReadsEncoder(t *testing.T) {
	root := must[string](t)(filepath.Abs("../.."))
	path := filepath.Join(root, ".cache", "peers", "models", "tiny-vl")
	u := startUp(t, append(pair(t, model.MLP), "--store", "mooncake", "--encoder-protocol", "v3", "--encoder-vllm-model", path,
		"--encoder-embedding-cache-prefix", vllmPrefix)...)
	file := plain(t, color.RGBA{20, 220, 30, 255})
	item := u.mustAsk(t, "0", file).Items[0]
	u.stored(t, "encoder-0", 1)

	s := startVLLMSide(t, u.address["mooncake-master"])
	names := s.ask(t, vllmAsk{Op: "names", DType: "bfloat16", Pictures: [][]byte{file}})
	got := s.ask(t, vllmAsk{Op: "resolve", DType: "bfloat16", IDs: []string{string(names.Identifiers[0])}, Rows: item.Rows, Cols: item.Cols})

	a := must[*arena.Arena](t)(arena.New(arena.Config{Name: "live", Bytes: 8 << 20}))
	t.Cleanup(func() { a.Close() })
	c := must[*mooncake.Client](t)(mooncake.Open(t.Context(), mooncake.Config{Addr: u.address["mooncake-client"], Logger: quiet}, a))
	t.Cleanup(func() { c.Close() })
	ns := embedding.Namespace{Prefix: vllmPrefix, Model: path, Encoder: embedding.VLLMDefaultEncoder, DType: embedding.BFloat16, Protocol: embedding.V3}
	key := ns.Key(embedding.VLLMNaming{Model: path}.Identifier(file, true))
	if want := sumOf(readV3(t, c, key, item.Rows, item.Cols, ns.DType)); !slices.Equal(got.Sums, []string{want}) {
		t.Errorf("vLLM reads %v of the Encoder's picture, want %s", got.Sums, want)
	}
	t.Logf("vLLM's code named the picture %s and read %d x %d bfloat16 of the Encoder", names.Identifiers[0], item.Rows, item.Cols)
}
