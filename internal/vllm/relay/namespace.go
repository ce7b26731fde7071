// SPDX-License-Identifier: Apache-2.0

package relay

import "afterimage/internal/embedding"

// namespace returns that of what Encoders store, zero until it is known, and the era of what was learned.
func (l *learned) namespace() (n embedding.Namespace, era int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.space, l.era
}

// setNamespace forgets what was learned of pictures, and returns true, unless it was learned under n.
func (l *learned) setNamespace(n embedding.Namespace) (forgot bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.space = n
	if l.of == n.String() {
		return false
	}
	l.of, l.frame = n.String(), Frame{}
	l.shapes, l.names, l.taken = halves[Shape, Grid]{}, halves[name, string]{}, halves[string, Grid]{}
	l.era++
	return true
}

// knownIn returns the frame, unless what was learned in era has been forgotten.
func (l *learned) knownIn(era int) (Frame, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.frame, l.frame != Frame{} && l.era == era
}

// maxSavedShapes bounds the file.
const maxSavedShapes = 2048

// save puts into s what is worth being known to a successor.
func (l *learned) save(s *state) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.Namespace, s.Frame, s.Shapes = l.of, l.frame, nil
	for _, half := range []map[Shape]Grid{l.shapes.young, l.shapes.old} {
		for sh, g := range half {
			if len(s.Shapes) < maxSavedShapes {
				s.Shapes = append(s.Shapes, shapeGrid{sh, g})
			}
		}
	}
}

// restore takes what a predecessor knew.
func (l *learned) restore(s *state) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.of, l.frame = s.Namespace, s.Frame
	for _, sh := range s.Shapes {
		l.shapes.put(sh.Shape, sh.Grid)
	}
}
