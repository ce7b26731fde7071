// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"sync"

	"afterimage/internal/embedding"
)

// Shape is all that the place of a picture in a prompt depends on.
type Shape struct {
	Model       string `json:"model"`             // as the request has it, in JSON
	Options     string `json:"options,omitempty"` // that change what the processor does, in JSON
	Width       int    `json:"width"`
	Height      int    `json:"height"`
	Orientation int    `json:"orientation"` // of the file
}

// Picture is an image of a request.
type Picture struct {
	Shape
	// UUID is the name under which the request goes to workers; Content is that of what it holds, "" if it is not known.
	UUID, Content string
}

// Grid is vLLM's image_grid_thw: patches in time, height and width.
type Grid [3]int

// MetadataName is the member of an Encoder's report that is understood. A picture with others is left to Encoders.
const MetadataName = "image_grid_thw"

// ParseGrid reads a grid, [1,16,16] or [[1,16,16]].
func ParseGrid(raw []byte) (g Grid, ok bool) {
	raw = bytes.TrimSpace(raw)
	if len(raw) > 64 {
		return g, false
	}
	var nested [][]int
	var flat []int
	if json.Unmarshal(raw, &nested) == nil && len(nested) == 1 {
		flat = nested[0]
	} else if json.Unmarshal(raw, &flat) != nil {
		return g, false
	}
	if len(flat) != len(g) {
		return g, false
	}
	for i, n := range flat {
		if n < 1 || n > math.MaxInt16 {
			return g, false
		}
		g[i] = n
	}
	return g, true
}

func (g Grid) String() string { return fmt.Sprintf("[%d,%d,%d]", g[0], g[1], g[2]) }

func (g Grid) patches() int { return g[0] * g[1] * g[2] }

// Frame is what the embeddings of a model have in common.
type Frame struct {
	Cols  int `json:"cols"`  // width of a row
	Merge int `json:"merge"` // patches to a row; a square
}

// maxMergeSide bounds the side of the square of patches that become one row; models have 1 to 4.
const maxMergeSide = 8

// frameOf returns the frame of an object that stands for g.
func frameOf(g Grid, m embedding.Meta) (Frame, error) {
	for side := 1; side <= maxMergeSide; side++ {
		if m.Rows*side*side == g.patches() && g[1]%side == 0 && g[2]%side == 0 {
			return Frame{Cols: m.Cols, Merge: side * side}, nil
		}
	}
	return Frame{}, fmt.Errorf("%w: %d rows for a grid of %v", embedding.ErrContract, m.Rows, g)
}

// contract is what an object that stands for g must satisfy.
func (f Frame) contract(g Grid, d embedding.DType) (embedding.Contract, error) {
	if g.patches()%f.Merge != 0 {
		return embedding.Contract{}, fmt.Errorf("%w: a grid of %v is no multiple of %d patches", embedding.ErrContract, g, f.Merge)
	}
	return embedding.Contract{Rows: g.patches() / f.Merge, Cols: f.Cols, DType: d}, nil
}

// name is what a client sent, of which an Encoder said how the engine calls it.
type name struct{ options, uuid, content string }

// maxLearned bounds each thing that is remembered; they are forgotten in two halves.
const maxLearned = 1 << 14

// learned is what Encoders and workers taught.
type learned struct {
	mu     sync.Mutex          // guards what follows
	space  embedding.Namespace // of what Encoders store; zero until it is known
	of     string              // the namespace that what follows belongs to
	era    int                 // counts how often what follows was forgotten
	frame  Frame               // zero until it is known
	shapes halves[Shape, Grid]
	names  halves[name, string]
	taken  halves[string, Grid] // hashes that a worker took, as an Encoder made them
}

// halves is a map that forgets what was not asked for.
type halves[K comparable, V any] struct{ young, old map[K]V }

func (h *halves[K, V]) get(k K) (V, bool) {
	v, ok := h.young[k]
	if !ok {
		if v, ok = h.old[k]; ok {
			h.put(k, v)
		}
	}
	return v, ok
}

func (h *halves[K, V]) put(k K, v V) {
	if h.young == nil {
		h.young = map[K]V{}
	}
	if h.young[k] = v; len(h.young) > maxLearned/2 {
		h.young, h.old = map[K]V{}, h.young
	}
}

// spoiled is the grid of shapes of which Encoders said different things: it is not the shape that decides.
var spoiled = Grid{}

// learn files what an Encoder reported of a picture, once a worker has taken what it made. It returns true if the shape
// is new.
func (l *learned) learn(p Picture, hash string, g Grid) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.Content != "" {
		l.names.put(name{p.Options, p.UUID, p.Content}, hash)
	}
	l.taken.put(hash, g)
	if p.Width == 0 {
		return false
	}
	old, known := l.shapes.get(p.Shape)
	if known && old != g {
		g = spoiled
	}
	l.shapes.put(p.Shape, g)
	return !known || old != g
}

// hash returns the engine's name for a picture: what an Encoder said, or else vLLM's rule that a name without options
// is kept. A client's own name is never believed: it stands for what an Encoder was shown with it, and no other file.
func (l *learned) hash(p Picture) (string, bool) {
	if p.Content == "" {
		return "", false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if h, ok := l.names.get(name{p.Options, p.UUID, p.Content}); ok {
		return h, true
	}
	return p.UUID, p.Options == "" && p.UUID == p.Content
}

// grid returns the grid of a picture's shape.
func (l *learned) grid(s Shape) (Grid, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	g, ok := l.shapes.get(s)
	return g, ok && g != spoiled
}

// frameOrFind returns the frame. Unless it is known it is that of m, an object that stands for g, if a worker took that
// very embedding from an Encoder. found says that it has just come to be known.
func (l *learned) frameOrFind(w want, m embedding.Meta) (f Frame, found bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.era != w.era {
		return Frame{}, false, errUnknown // the object may be of another model
	}
	if l.frame != (Frame{}) {
		return l.frame, false, nil
	}
	if at, ok := l.taken.get(w.hash); !ok || at != w.grid {
		return Frame{}, false, errUnknown
	}
	if f, err = frameOf(w.grid, m); err == nil {
		l.frame, found = f, true
	}
	return f, found, err
}

func (l *learned) known() (Frame, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.frame, l.frame != Frame{}
}
