// SPDX-License-Identifier: Apache-2.0

package vllm

import (
	"bytes"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// logged collects lines; requests end after their answers were read.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
	is chan struct{} // one per line
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer func() { l.is <- struct{}{} }()
	return l.b.Write(p)
}

// TestLine: one line per request, with its stages, bytes and tokens; with parameters on demand, and never a word of
// the client's.
func TestLine(t *testing.T) {
	const secret = "SECRET"
	log := &logged{is: make(chan struct{}, 16)}
	f := dynamic(t, func(c *Config) { c.Logger, c.LogRequests = slog.New(slog.NewTextHandler(log, nil)), true })
	pd := newStub(t, inTurn(says(200, `{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3}}`), says(400, `{"error":{"message":"bad stop","type":"BadRequestError","code":400}}`)))
	e := newStub(t, encodes(""))
	works(t, f.join(t, PrefillDecode, pd.URL, ""))
	works(t, f.join(t, Encode, e.URL, ""))
	for len(log.is) > 0 {
		<-log.is
	}
	log.b.Reset()
	body := `{"model":"m","top_p":0.5,"stop":"` + secret + `","messages":[{"role":"user","content":[{"type":"text","text":"` + secret + `"},` + image(secret+"AA") + `]}]}`
	works(t, f.post(t, "mine", []byte(body)))
	<-log.is
	fails(t, f.post(t, "other", []byte(body)), 400, "bad stop")
	<-log.is
	log.mu.Lock()
	got := log.b.String()
	log.mu.Unlock()
	for _, want := range []string{
		`msg=request request=mine path=/v1/chat/completions status=200 model=m read_ms=\S+ encode_ms=\S+ first_byte_ms=\S+ total_ms=\S+ media=1 top_p=0.5 bytes_in=\d+ bytes_out=64 prompt_tokens=7 cached_tokens=0 completion_tokens=3\n`,
		`request=other .*status=400 .*bytes_out=\d+ err="bad stop"\n`,
	} {
		if !regexp.MustCompile(want).MatchString(got) {
			t.Errorf("no line %s in\n%s", want, got)
		}
	}
	if strings.Contains(got, secret) {
		t.Errorf("the log holds words of the client's:\n%s", got)
	}
}
