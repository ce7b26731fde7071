// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// FuzzSession feeds a receiver whatever a peer may send. It must end the connection in time, keep its
// other transfers, and give all memory back.
func FuzzSession(f *testing.F) {
	greeting := appendText(nil, header{Type: frameHello}, testHello(testEngine).encode())
	f.Add(greeting)
	f.Add(append(greeting[:len(greeting):len(greeting)], header{Type: framePing}.append(nil)...))
	f.Add(append(greeting[:len(greeting):len(greeting)], header{Type: frameData, Length: 3}.append(nil)...))
	f.Add(header{Type: frameAbandon}.append(nil))
	for _, typ := range []frameType{frameReserve, frameRefresh, frameComplete, frameRecall, frameAbandon} {
		f.Add(append(greeting[:len(greeting):len(greeting)], header{Type: typ, Length: lendBytes}.append(nil)...))
	}
	f.Fuzz(func(t *testing.T, sent []byte) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, 1)
			defer w.close()
			tk := w.grant(want("a"))[0]
			p := w.mute()
			go func() { _, _ = io.Copy(io.Discard, p.nc) }()
			_, _ = p.nc.Write(sent)
			p.nc.Close()
			time.Sleep(time.Second)
			w.mu.Lock()
			n := len(w.sessions)
			w.mu.Unlock()
			if n != 0 {
				t.Errorf("%d sessions outlive their connection", n)
			}
			q := w.raw()
			defer q.nc.Close()
			q.write(append(data(tk).append(nil), object(t, "a")...))
			q.wantAck(data(tk), statusComplete)
			w.wantObject(tk, object(t, "a"))
		})
	})
}
