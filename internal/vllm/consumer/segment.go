// SPDX-License-Identifier: Apache-2.0

package consumer

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
)

// A handshake is one message in each direction: u64 little endian, the length of what follows; u8, the kind; JSON.
const (
	kindMetadata = 1
	// maxSegment bounds the answer, as Mooncake does itself.
	maxSegment = 1 << 20
)

// ownSegment is the document of this side. The peer ignores what is in it.
const ownSegment = `{"buffers":[],"name":"afterimage","protocol":"tcp","tcp_data_port":0,"tcp_proto_version":2}` + "\n"

// minProtocol is the first version of the data connection that acknowledges writes and checks their addresses.
const minProtocol = 2

// ErrUnfit is wrapped by errors about a consumer that cannot be written to as it is run, which no retry changes.
var ErrUnfit = errors.New("the consumer cannot be written to over TCP")

// segment is what a Transfer Engine says of itself in a handshake.
type segment struct {
	Protocol json.RawMessage `json:"protocol"`      // a string, or a list
	DataHost string          `json:"tcp_data_host"` // from Mooncake 0.3.13 on
	DataPort int             `json:"tcp_data_port"`
	Version  int             `json:"tcp_proto_version"` // from Mooncake 0.3.12 on
	Buffers  []struct {
		Address uint64 `json:"addr"`
		Length  uint64 `json:"length"`
	} `json:"buffers"`
}

// handshake asks the engine at the other end of nc for its segment, and closes nc. The engine serves one handshake at
// a time, and waits 5 s for each step of one.
func handshake(ctx context.Context, nc net.Conn) (*segment, error) {
	defer nc.Close()
	end, _ := ctx.Deadline()
	_ = nc.SetDeadline(end)
	msg := binary.LittleEndian.AppendUint64(nil, uint64(len(ownSegment)+1))
	if _, err := nc.Write(append(append(msg, kindMetadata), ownSegment...)); err != nil {
		return nil, err
	}
	var head [9]byte
	if _, err := io.ReadFull(nc, head[:]); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint64(head[:])
	if n < 2 || n > maxSegment || head[8] != kindMetadata {
		return nil, fmt.Errorf("an answer of %d bytes and kind %d, want 2 to %d of kind %d", n, head[8], maxSegment, kindMetadata)
	}
	doc := make([]byte, n-1)
	if _, err := io.ReadFull(nc, doc); err != nil {
		return nil, err
	}
	s := &segment{}
	if err := json.Unmarshal(doc, s); err != nil {
		return nil, fmt.Errorf("the segment %.80q: %w", doc, err)
	}
	return s, nil
}

// dataAddress returns where the engine of session takes data. Errors wrap ErrUnfit.
func (s *segment) dataAddress(session string) (string, error) {
	if s.DataPort < 1 || s.DataPort > 65535 {
		return "", fmt.Errorf("%w: its Transfer Engine has protocol %s and no TCP port; start it with MC_FORCE_TCP=1", ErrUnfit, s.Protocol)
	}
	if s.Version < minProtocol {
		return "", fmt.Errorf("%w: its Transfer Engine does not acknowledge writes (tcp_proto_version %d); install Mooncake 0.3.12 or later",
			ErrUnfit, s.Version)
	}
	host, _, err := net.SplitHostPort(session)
	if err != nil {
		return "", fmt.Errorf("the session %.80q: %w", session, err)
	}
	if s.DataHost != "" {
		host = s.DataHost
	}
	return net.JoinHostPort(host, strconv.Itoa(s.DataPort)), nil
}

// contains says whether n bytes at address lie in one of the buffers.
func (s *segment) contains(address uint64, n int) bool {
	for _, b := range s.Buffers {
		if address >= b.Address && uint64(n) <= b.Length && address-b.Address <= b.Length-uint64(n) {
			return true
		}
	}
	return false
}
