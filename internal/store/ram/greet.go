// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"encoding/binary"
	"fmt"
)

// ask is the client's part of a hello.
type ask struct {
	pid    uint32
	flags  uint32 // flagLink
	link   uint64 // to join as a lane; 0 for none
	lane   uint64 // number of the lane, chosen by the client
	memory uint64 // bytes of the client's arena; with flagLink, its descriptor comes along unless 0
	table  uint64 // likewise of the client's table
}

func (a ask) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, wireVersion)
	b = binary.LittleEndian.AppendUint32(b, a.pid)
	b = binary.LittleEndian.AppendUint32(b, a.flags)
	b = binary.LittleEndian.AppendUint32(b, 0)
	b = binary.LittleEndian.AppendUint64(b, a.link)
	b = binary.LittleEndian.AppendUint64(b, a.lane)
	b = binary.LittleEndian.AppendUint64(b, a.memory)
	return binary.LittleEndian.AppendUint64(b, a.table)
}

// parseAsk reads the version first, so that a client of another one is told so whatever its hello
// looks like.
func parseAsk(body []byte) (ask, error) {
	c := cursor{b: body}
	if v := c.u32(); !c.bad && v != wireVersion {
		return ask{}, fmt.Errorf("%w: client speaks version %d, this Store %d", errProtocol, v, wireVersion)
	}
	a := ask{pid: c.u32(), flags: c.u32()}
	c.u32()
	a.link, a.lane, a.memory, a.table = c.u64(), c.u64(), c.u64(), c.u64()
	return a, c.end()
}

// greeting is what a Store says of itself.
type greeting struct {
	flags     uint32 // flagLink: the link is made, or the lane has joined it; flagMemory
	epoch     uint64
	maxObject int64
	link      uint64
	memory    int64 // bytes of the Store's arena; with a link, the descriptors of it, the sketch and the index come along
	sketch    int64
	index     int64
	place     uint64 // of the client in the index, or noPlace
}

func (g greeting) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, wireVersion)
	b = binary.LittleEndian.AppendUint32(b, g.flags)
	b = binary.LittleEndian.AppendUint64(b, g.epoch)
	b = binary.LittleEndian.AppendUint64(b, uint64(g.maxObject))
	b = binary.LittleEndian.AppendUint64(b, g.link)
	b = binary.LittleEndian.AppendUint64(b, uint64(g.memory))
	b = binary.LittleEndian.AppendUint64(b, uint64(g.sketch))
	b = binary.LittleEndian.AppendUint64(b, uint64(g.index))
	return binary.LittleEndian.AppendUint64(b, g.place)
}

func parseGreeting(body []byte) (greeting, error) {
	c := cursor{b: body}
	if v := c.u32(); !c.bad && v != wireVersion {
		return greeting{}, fmt.Errorf("%w: Store speaks version %d, this client %d", errProtocol, v, wireVersion)
	}
	g := greeting{flags: c.u32(), epoch: c.u64(), maxObject: int64(c.u64()), link: c.u64(), memory: int64(c.u64()), sketch: int64(c.u64()),
		index: int64(c.u64()), place: c.u64()}
	return g, c.end()
}
