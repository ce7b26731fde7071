// SPDX-License-Identifier: Apache-2.0

package system

import (
	"bytes"

	"afterimage/internal/embedding"
	"afterimage/internal/engine"
)

// parrot is the modelled text engine with two tricks, for clients that must know what they will read.
// Asked to "repeat after me: …" it does, a byte per token, so that every character beyond ASCII is cut.
// Asked to "roll dice" all letters are equally likely, so that the seed alone decides.
type parrot struct {
	engine.Text
	runner *parrotRunner
}

func newParrot(t engine.Text) engine.Text {
	run := t.Runner()
	return &parrot{Text: t, runner: &parrotRunner{Runner: run, text: t, fed: make([]parrotMemory, run.Limits().Sequences)}}
}

// Runner implements engine.Text.
func (p *parrot) Runner() engine.Runner { return p.runner }

// parrotRunner remembers what each sequence was fed. The tokens of the modelled engine are bytes.
type parrotRunner struct {
	engine.Runner
	text engine.Text
	fed  []parrotMemory
	last []int // sequences of the last call
}

type parrotMemory struct {
	toks   []byte // one per position; endOfTurn for what is no byte
	prompt int    // how many of them are the prompt
}

// endOfTurn stands for control tokens and rows in a prompt; no UTF-8 has it.
const endOfTurn = 0xff

func (r *parrotRunner) PrefillTokens(seq, pos int, toks []int32, logits bool) error {
	m := &r.fed[seq]
	for _, t := range toks {
		m.add(t)
	}
	m.prompt, r.last = len(m.toks), []int{seq}
	return r.Runner.PrefillTokens(seq, pos, toks, logits)
}

func (r *parrotRunner) PrefillRows(seq, pos int, p embedding.Part, first, n int, rows []byte) error {
	m := &r.fed[seq]
	for range n {
		m.add(endOfTurn)
	}
	return r.Runner.PrefillRows(seq, pos, p, first, n, rows)
}

func (r *parrotRunner) Decode(next []engine.Next) error {
	r.last = nil
	for _, n := range next {
		r.fed[n.Seq].add(n.Token)
		r.last = append(r.last, n.Seq)
	}
	return r.Runner.Decode(next)
}

func (r *parrotRunner) Truncate(seq, pos, cells int) bool {
	r.fed[seq].toks = r.fed[seq].toks[:cells]
	return r.Runner.Truncate(seq, pos, cells)
}

func (r *parrotRunner) Copy(dst, src int) {
	r.fed[dst].toks = bytes.Clone(r.fed[src].toks)
	r.Runner.Copy(dst, src)
}

func (m *parrotMemory) add(tok int32) { m.toks = append(m.toks, byte(min(tok, endOfTurn))) }

// Logits implements engine.Runner.
func (r *parrotRunner) Logits(i int) []float32 {
	l, m := r.Runner.Logits(i), r.fed[r.last[i]]
	prompt, answer := m.toks[:m.prompt], len(m.toks)-m.prompt
	_, words, repeat := bytes.Cut(prompt, []byte("repeat after me: "))
	words, _, _ = bytes.Cut(words, []byte{endOfTurn})
	switch {
	case repeat && answer < len(words):
		clear(l)
		l[words[answer]] = 20
	case repeat:
		clear(l)
		for t := range l {
			if r.text.EndOfGeneration(int32(t)) {
				l[t] = 20
			}
		}
	case bytes.Contains(prompt, []byte("roll dice")):
		clear(l)
		for t := 'a'; t <= 'z'; t++ {
			l[t] = 20
		}
	}
	return l
}
