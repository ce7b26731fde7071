// SPDX-License-Identifier: Apache-2.0

//go:build !race

package system

import (
	"bytes"
	"encoding/json"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"afterimage/internal/client"
	"afterimage/internal/model"
	"afterimage/internal/openai"
)

// plain returns a PNG of one colour.
func plain(t *testing.T, c color.Color) []byte {
	t.Helper()
	m := image.NewRGBA(image.Rect(0, 0, 224, 160))
	draw.Draw(m, m.Rect, image.NewUniform(c), image.Point{}, draw.Src)
	var b bytes.Buffer
	if err := png.Encode(&b, m); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// noise returns a PNG of 64 x 64 random pixels, which is 12 KiB.
func noise(t *testing.T, seed int64) []byte {
	t.Helper()
	m := image.NewRGBA(image.Rect(0, 0, 64, 64))
	random := rand.New(rand.NewPCG(uint64(seed), 0))
	for i := range m.Pix {
		m.Pix[i] = uint8(random.Uint32()) | uint8(i%4/3*255)
	}
	var b bytes.Buffer
	if err := png.Encode(&b, m); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// save writes a picture to a file, as the command line wants it.
func save(t *testing.T, picture []byte) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "picture.png")
	if err := os.WriteFile(name, picture, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// askCommand runs `afterimage ask`, which must succeed, and returns what it prints.
func (u *upRun) askCommand(t *testing.T, args ...string) string {
	t.Helper()
	stdout, stderr, status := run(t, append([]string{"ask", "--url", u.url, "--max-tokens", "16"}, args...)...)
	if status != 0 || stderr != "" {
		t.Fatalf("ask %q: status %d, %s", args, status, stderr)
	}
	return stdout
}

// chat posts a conversation that is not streamed and returns the text of the answer.
func (u *upRun) chat(t *testing.T, messages ...any) string {
	t.Helper()
	status, body := u.post(t, map[string]any{"messages": messages, "temperature": 0, "max_tokens": 16})
	return content(t, status, string(body))
}

func (u *upRun) post(t *testing.T, fields map[string]any) (status int, body []byte) {
	t.Helper()
	b, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := u.client.HTTP.Post(u.url+"/v1/chat/completions", "application/json", bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err = io.ReadAll(resp.Body); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, body
}

// streamed posts the same conversation as a stream and joins the pieces.
func (u *upRun) streamed(t *testing.T, messages ...any) string {
	t.Helper()
	_, body := u.post(t, map[string]any{"messages": messages, "temperature": 0, "max_tokens": 16, "stream": true})
	var text strings.Builder
	for events := openai.NewEventReader(bytes.NewReader(body), openai.DefaultMaxEventBytes); ; {
		ev, err := events.Next()
		if err != nil {
			t.Fatalf("%v in the stream\n%s", err, body)
		}
		if ev.Done {
			return text.String()
		}
		var c struct {
			Choices []struct{ Delta struct{ Content string } }
		}
		if err := json.Unmarshal(ev.Data(), &c); err != nil {
			t.Fatalf("%v in event %s", err, ev.Raw)
		}
		for _, choice := range c.Choices {
			text.WriteString(choice.Delta.Content)
		}
	}
}

// TestUpServesTheDemo is the first minutes of a user: `up` without any model, questions about
// pictures, and the second Encoder reusing what the first one encoded.
func TestUpServesTheDemo(t *testing.T) {
	needEngine(t)
	u := startUp(t)
	for _, want := range []string{"the built-in demo", "colours, not objects", "ROLE", "afterimage ask --url " + u.url, "curl -s " + u.url} {
		if !strings.Contains(u.out.String(), want) {
			t.Errorf("up does not print %q", want)
		}
	}
	red, blue := plain(t, color.RGBA{220, 20, 30, 255}), plain(t, color.RGBA{20, 40, 220, 255})
	t.Run("reuse", func(t *testing.T) { u.checkReuse(t, red) })
	t.Run("only the unknown one", func(t *testing.T) {
		q := client.Question{Text: "Name the colours.", Images: [][]byte{red, blue}, Encoder: "1", MaxTokens: 8}
		a, err := u.client.Ask(t.Context(), q, nil)
		if err != nil || sources(a) != "local encoded" {
			t.Errorf("one of two is known: sources %q (%v), want local encoded", sources(a), err)
		}
	})
	t.Run("the same picture twice", func(t *testing.T) {
		before := u.encodes(t)
		if a := u.mustAsk(t, "0", blue, blue); sources(a) != "store store" || a.Items[0].Identifier != a.Items[1].Identifier {
			t.Errorf("items %+v, want two of one identifier from the Store", a.Items)
		}
		if n := u.encodes(t) - before; n != 0 {
			t.Errorf("%v encodes, want none", n)
		}
	})
	t.Run("colours", func(t *testing.T) {
		for name, file := range map[string][]byte{"red": red, "blue": blue} {
			if got := u.chat(t, user(img(file), text("Name the colour."))); !strings.Contains(got, name) {
				t.Errorf("a plain %s picture: %q", name, got)
			}
		}
	})
	t.Run("three turns", func(t *testing.T) {
		answer := func(s string) any { return map[string]any{"role": "assistant", "content": s} }
		turns := []any{user(img(red), text("Name the colour.")), answer("The colour is red."),
			user(text("And this one?"), img(blue)), answer("The colour is blue."), user(text("Name both colours."))}
		whole, pieces := u.chat(t, turns...), u.streamed(t, turns...)
		if whole == "" || whole != pieces {
			t.Errorf("whole answer %q, streamed %q", whole, pieces)
		}
	})
}

// encodes is how often the engines of both Encoders ran.
func (u *upRun) encodes(t *testing.T) float64 {
	t.Helper()
	const name = "afterimage_encoder_encodes_total"
	return u.count(t, "encoder-0", name, "") + u.count(t, "encoder-1", name, "")
}

// checkReuse asks one Encoder and then the other, by the commands that README names.
func (u *upRun) checkReuse(t *testing.T, picture []byte) {
	file := save(t, picture)
	first, trailer, ok := strings.Cut(u.askCommand(t, "--encoder", "0", "--image", file, "Name the colour."), "\n\nimage 0: ")
	if !ok || !strings.Contains(first, "red") || !strings.HasPrefix(trailer, "source=encoded encoder=encoder-0 road=loan rows=16 ") {
		t.Errorf("first answer %q, then %q", first, trailer)
	}
	u.stored(t, "encoder-0", 1)
	eventually(t, "the gateway knows of what is stored", func() bool {
		return u.count(t, "gateway", "afterimage_gateway_stored_keys", "") == 1
	})

	var second client.Answer
	if err := json.Unmarshal([]byte(u.askCommand(t, "--encoder", "1", "--json", "--image", file, "Name the colour.")), &second); err != nil {
		t.Fatal(err)
	}
	if sources(second) != "store" || second.Text != first || second.Items[0].Encoder != "encoder-1" || second.TTFTMS <= 0 {
		t.Errorf("the other Encoder: %+v, want source store and the text %q", second, first)
	}
	hits := u.count(t, "encoder-0", "afterimage_encoder_items_total", "store") + u.count(t, "encoder-1", "afterimage_encoder_items_total", "store")
	if n := u.encodes(t); n != 1 || hits != 1 {
		t.Errorf("counters say %v encodes and %v Store hits, want one each", n, hits)
	}

	trace := u.askCommand(t, "--encoder", "1", "--trace", "--image", file, "Name the colour.")
	for _, want := range []string{`(?m)^image 0: source=local encoder=encoder-1 `, `(?m)^image 0: identifier [0-9a-f]{64}$`,
		`(?m)^request [0-9a-f]+ on prefill-0, attempts: 1$`, `(?m)^ +prepare +[\d.]+ +[\d.]+$`} {
		if !regexp.MustCompile(want).MatchString(trace) {
			t.Errorf("--trace prints no %s:\n%s", want, trace)
		}
	}
}

// TestUpServesAnyProjector serves a random pair of each kind. Such a model answers with any bytes, of
// which a client must get valid text.
func TestUpServesAnyProjector(t *testing.T) {
	for _, p := range []model.Projector{model.MLP, model.InternVL, model.Gemma3, model.Qwen2VL} {
		t.Run(string(p), func(t *testing.T) {
			u := startUp(t, pair(t, p)...)
			file := picture(t, 150, 90, 3)
			whole := u.chat(t, user(img(file), text("what?")))
			pieces := u.streamed(t, user(img(file), text("what?")))
			if whole == "" || whole != pieces || !utf8.ValidString(whole) {
				t.Errorf("whole answer %q, streamed %q", whole, pieces)
			}
			if a := u.mustAsk(t, "0", file); a.Text == "" || len(a.Items) != 1 || a.Items[0].Source == "" {
				t.Errorf("answer %+v", a)
			}
		})
	}
}
