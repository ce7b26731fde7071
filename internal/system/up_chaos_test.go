// SPDX-License-Identifier: Apache-2.0

//go:build !race

package system

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"afterimage/internal/model"
)

// chaos is a load of mixed requests on a fleet whose roles are killed.
type chaos struct {
	u      *upRun
	bodies [][]byte
	want   []string // what a calm fleet answers
	roles  []string

	asked, again, cut, noGateway atomic.Int64 // answers, 503s, streams cut, and calls that a gateway died over
}

// TestChaos kills every role in turn, again and again, under a load of mixed requests: texts, pictures, several
// of them, one twice, streamed or not. No answer is wrong: the model's weights are F16, so that the words are
// those of a calm fleet, to the last. No request is lost: each ends in its answer or in a 503 that says when to
// come again. And at the end the roles hold no more memory than before. AFTERIMAGE_SOAK=1 goes on for 3 minutes.
func TestChaos(t *testing.T) {
	duration := 20 * time.Second
	if soaking() {
		duration = 3 * time.Minute
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	c := &chaos{u: startUp(t, pairOf(t, model.RandomOptions{Size: model.Small, Seed: 1})...), roles: []string{"encoder-0", "prefill-0", "store", "encoder-1", "gateway"}}
	c.make(t, random)
	for i := range c.bodies {
		c.want = append(c.want, "")
		c.want[i] = c.ask(t, i)
	}
	c.round(t) // memory that fills once is filled
	before := c.u.memory(t)

	end := time.Now().Add(duration)
	kills := 0
	var load sync.WaitGroup
	for client := range 4 {
		own := rand.New(rand.NewPCG(seed, uint64(client+1)))
		load.Go(func() {
			for time.Now().Before(end) && !t.Failed() {
				i := own.IntN(len(c.bodies))
				if got := c.ask(t, i); got != c.want[i] {
					t.Errorf("request %d: %q, a calm fleet says %q", i, got, c.want[i])
				}
			}
		})
	}
	tell := everyMinute(t, func() string { return fmt.Sprintf("%s through %d kills", c.counts(), kills) })
	for ; time.Now().Before(end) && !t.Failed(); kills++ {
		tell()
		if pid := c.u.roles()[c.roles[kills%len(c.roles)]]; pid != 0 {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		time.Sleep(time.Duration(400+random.IntN(800)) * time.Millisecond) // what is under way when the next one dies
		// What dies often is started again after up to 5 s. With all of them down nothing is under way.
		for len(c.u.roles()) < len(c.roles)-1 && time.Now().Before(end) {
			time.Sleep(50 * time.Millisecond)
		}
	}
	load.Wait()
	say(t, "%s through %d kills", c.counts(), kills)
	if kills < len(c.roles) {
		t.Errorf("only %d kills", kills)
	}
	c.u.works(t)
	c.round(t)
	for name, after := range c.u.memory(t) {
		if grown := after - before[name]; grown > 24<<20 {
			t.Errorf("%s holds %d MiB more than before", name, grown>>20)
		}
	}
	c.u.idle(t)
}

func (c *chaos) counts() string {
	return fmt.Sprintf("%d answers, %d times 503, %d streams cut, %d calls without a gateway",
		c.asked.Load(), c.again.Load(), c.cut.Load(), c.noGateway.Load())
}

// make writes the requests.
func (c *chaos) make(t *testing.T, random *rand.Rand) {
	var files [][]byte
	for i := range 10 {
		files = append(files, noise(t, int64(500+i)))
	}
	for i := range 40 {
		var parts []any
		for range random.IntN(4) {
			parts = append(parts, img(files[random.IntN(len(files))]))
			if random.IntN(2) == 0 {
				parts = append(parts, text(strings.Repeat("look ", 1+random.IntN(30))))
			}
		}
		b, err := json.Marshal(map[string]any{
			"messages": []any{user(append(parts, text(fmt.Sprint("question ", i)))...)}, "temperature": 0, "max_tokens": 8, "stream": i%4 == 3,
		})
		if err != nil {
			t.Fatal(err)
		}
		c.bodies = append(c.bodies, b)
	}
}

// round asks everything once, of a calm fleet.
func (c *chaos) round(t *testing.T) {
	t.Helper()
	for i := range c.bodies {
		if got := c.ask(t, i); got != c.want[i] {
			t.Errorf("request %d of a calm fleet: %q, before %q", i, got, c.want[i])
		}
	}
}

// ask brings request i to its answer, as a client does that comes again after a 503, a stream that ends in an
// error, and a gateway that is gone.
func (c *chaos) ask(t *testing.T, i int) string {
	t.Helper()
	for deadline := time.Now().Add(loadPatience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		status, header, body, err := c.post(c.bodies[i])
		switch {
		case err != nil: // the gateway was killed over it, or is not back yet
			c.noGateway.Add(1)
		case status == http.StatusServiceUnavailable && header.Get("Retry-After") != "":
			c.again.Add(1)
		case status != http.StatusOK:
			t.Errorf("request %d: status %d, Retry-After %q: %s", i, status, header.Get("Retry-After"), body)
			return ""
		case strings.HasPrefix(header.Get("Content-Type"), "text/event-stream"):
			words, whole := joinStream(body)
			if whole {
				c.asked.Add(1)
				return words
			}
			c.cut.Add(1)
		default:
			c.asked.Add(1)
			return content(t, status, string(body))
		}
	}
	t.Errorf("request %d has no answer within %v", i, loadPatience)
	return ""
}

func (c *chaos) post(body []byte) (int, http.Header, []byte, error) {
	resp, err := c.u.client.HTTP.Post(c.u.url+"/v1/chat/completions", "application/json", bytes.NewReader(body))
	if err != nil {
		return 0, nil, nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, resp.Header, b, err
}

// joinStream joins the words of a stream, and says whether it has come to a proper end.
func joinStream(body []byte) (words string, whole bool) {
	var text strings.Builder
	for line := range strings.Lines(string(body)) {
		data, ok := strings.CutPrefix(strings.TrimSpace(line), "data: ")
		if !ok || data == "[DONE]" {
			continue
		}
		var chunk struct {
			Choices []struct {
				Delta  struct{ Content string }
				Finish string `json:"finish_reason"`
			}
		}
		if json.Unmarshal([]byte(data), &chunk) != nil {
			return "", false
		}
		for _, ch := range chunk.Choices {
			text.WriteString(ch.Delta.Content)
			whole = whole || ch.Finish != ""
		}
	}
	return text.String(), whole
}
