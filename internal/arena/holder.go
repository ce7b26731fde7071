// SPDX-License-Identifier: Apache-2.0

package arena

// Holder describes a range that is handed out, and who did what to it.
type Holder struct {
	Offset     int64
	Bytes      int
	References int
	History    string // the stack of every Reserve, Retain and Release, the oldest first
}

// Holders lists all ranges that are handed out, by offset. It is empty unless the build has the tag
// arenadebug, since keeping the stacks costs microseconds per call.
func (a *Arena) Holders() []Holder { return a.debug.list() }
