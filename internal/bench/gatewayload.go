// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// wireClient makes requests over one connection with as little work as can be, since it shares the machine with
// what is measured: head and body go out in one call, and of an answer only its status is looked at.
type wireClient struct {
	conn net.Conn
	in   *bufio.Reader
	head string // up to the value of Content-Length
}

// dialWire connects to a server by its base URL.
func dialWire(ctx context.Context, url string) (*wireClient, error) {
	at := strings.TrimPrefix(url, "http://")
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", at)
	if err != nil {
		return nil, err
	}
	head := "POST /v1/chat/completions HTTP/1.1\r\nHost: " + at + "\r\nContent-Type: application/json\r\nContent-Length: "
	return &wireClient{conn: conn, in: bufio.NewReader(conn), head: head}, nil
}

// send writes a request whose body lies in pieces.
func (c *wireClient) send(body ...[]byte) error {
	n := 0
	for _, b := range body {
		n += len(b)
	}
	out := net.Buffers(append([][]byte{fmt.Appendf(nil, "%s%d\r\n\r\n", c.head, n)}, body...))
	_, err := out.WriteTo(c.conn)
	return err
}

// post makes a whole request.
func (c *wireClient) post(body ...[]byte) error {
	if err := c.send(body...); err != nil {
		return err
	}
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("bench: answered %d: %.200s", resp.StatusCode, said)
	}
	return err
}

// pictures makes the bodies of requests with one picture each, as one client sends them: a fresh picture each time,
// or a few that come again. No two clients share a picture that is fresh.
type pictures struct {
	head, tail []byte
	payload    []byte // base64; its first digits are the number of the picture
	client     int
	n          int
	known      int // how many come again; 0: none does
}

// newPictures returns bodies of size bytes.
func newPictures(size, client, known int) *pictures {
	p := &pictures{
		head:   []byte(`{"model":"stub","max_tokens":1,"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,`),
		tail:   []byte(`"}},{"type":"text","text":"What is this?"}]}]}`),
		client: client, known: known,
	}
	n := (size - len(p.head) - len(p.tail)) / 4 * 4
	const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	p.payload = bytes.Repeat([]byte(digits), n/len(digits)+1)[:n]
	return p
}

// next returns the next body, in pieces. It is valid until the call after.
func (p *pictures) next() [][]byte {
	number := fmt.Sprintf("%04d%012d", p.client, p.n)
	if p.known > 0 {
		number = fmt.Sprintf("%04d%012d", 9999, p.n%p.known)
	}
	p.n++
	copy(p.payload, number)
	return [][]byte{p.head, p.payload, p.tail}
}

// rate puts a load of concurrent clients on url for a time and returns the requests per second.
func rate(ctx context.Context, url string, clients []*pictures, during time.Duration) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, during)
	defer cancel()
	var done atomic.Int64
	start := time.Now()
	err := connected(ctx, url, len(clients), func(i int, c *wireClient) error {
		for ctx.Err() == nil {
			if err := c.post(clients[i].next()...); err != nil {
				return err
			}
			done.Add(1)
		}
		return nil
	})
	return float64(done.Load()) / time.Since(start).Seconds(), err
}

// connected has n clients work at once, on a connection each, and returns the first error of one when all are done.
func connected(ctx context.Context, url string, n int, work func(i int, c *wireClient) error) error {
	var all errgroup.Group
	for i := range n {
		all.Go(func() error {
			c, err := dialWire(ctx, url)
			if err != nil {
				return err
			}
			defer c.conn.Close()
			return work(i, c)
		})
	}
	if err := all.Wait(); err != nil {
		return fmt.Errorf("bench: %s: %w", url, err)
	}
	return nil
}

// textBody is a request without media.
var textBody = []byte(`{"model":"stub","max_tokens":1,"messages":[{"role":"user","content":"What is this?"}]}`)

// paced sends text requests at a fixed rate for a time, whether the former ones are answered or not, and returns
// their times in milliseconds, from when each was due.
func paced(ctx context.Context, url string, perSecond int, during time.Duration) ([]float64, error) {
	const clients = 16
	n := int(during.Seconds() * float64(perSecond))
	times := make([]float64, n)
	var next atomic.Int64
	start := time.Now()
	err := connected(ctx, url, clients, func(_ int, c *wireClient) error {
		for ctx.Err() == nil {
			i := int(next.Add(1)) - 1
			if i >= n {
				return nil
			}
			due := start.Add(time.Duration(i) * time.Second / time.Duration(perSecond))
			time.Sleep(time.Until(due))
			// A timer wakes late by what has nothing to do with the server, and so on either way.
			from := time.Now()
			if late := from.Sub(due); late > time.Millisecond {
				from = due // the client was busy with the request before
			}
			if err := c.post(textBody); err != nil {
				return err
			}
			times[i] = milliseconds(time.Since(from))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return times, ctx.Err()
}
