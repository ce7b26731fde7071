// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"afterimage/internal/arena"
)

// TestGrantWholeOrNothing: a pool of 4, 50 requests of 3, all finish, in order of arrival.
func TestGrantWholeOrNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 4)
		defer w.close()
		s := w.sender()
		defer s.Close()
		var (
			wg    sync.WaitGroup
			mu    sync.Mutex
			order []int
		)
		for i := range 50 {
			wg.Go(func() {
				wants := []Want{want(name(3 * i)), want(name(3*i + 1)), want(name(3*i + 2))}
				tks, err := w.Grant(t.Context(), wants)
				if err != nil {
					t.Errorf("request %d: %v", i, err)
					return
				}
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				for k, tk := range tks {
					obj := object(t, name(3*i+k))
					buf := w.buf(obj)
					if err := s.Send(t.Context(), tk.Grant(), buf); err != nil {
						t.Errorf("request %d, object %d: %v", i, k, err)
					}
					buf.Release()
					w.wantObject(tk, obj)
				}
			})
			synctest.Wait() // so that request i is in line, or done, before the next arrives
		}
		wg.Wait()
		for i, got := range order {
			if got != i {
				t.Fatalf("served in order %v", order)
			}
		}
	})
}

// A large request at the head of the line is not starved by small ones that would fit.
func TestGrantIsFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 4)
		defer w.close()
		held := w.grant(want("0"), want("1"))
		got := make(chan string)
		ask := func(who string, n int) {
			wants := make([]Want, n)
			for i := range wants {
				wants[i] = want(who + name(i))
			}
			go func() {
				tks, err := w.Grant(t.Context(), wants)
				if err != nil {
					t.Errorf("%s: %v", who, err)
				}
				got <- who
				for _, tk := range tks {
					tk.Cancel()
				}
			}()
			synctest.Wait()
		}
		ask("large", 4)
		ask("small", 1)
		held[0].Cancel()
		synctest.Wait()
		select {
		case who := <-got:
			t.Fatalf("%s was served while the large request waits for its last object", who)
		default:
		}
		held[1].Cancel()
		for _, want := range []string{"large", "small"} {
			if who := <-got; who != want {
				t.Fatalf("%s was served, want %s", who, want)
			}
		}
	})
}

// What comes back while an attempt fails is not missed, also when others take as much at once: the bytes in
// use are the same then, and the largest free range is not.
func TestGrantMissesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a, b, c *arena.Buf
		take := func(in *arena.Arena, objects int) *arena.Buf {
			buf, err := in.Reserve(objects * objectBytes(testRows))
			if err != nil {
				t.Fatal(err)
			}
			return buf
		}
		w := newWorld(t, 4, func(cfg *ReceiverConfig) {
			in := cfg.Arena
			first := take(in, 1)
			a, b = take(in, 1), take(in, 1)
			first.Abort() // free, used, used, free
			cfg.Evict = func(int64) int64 {
				if b != nil { // free, used, free, free; then used, used, free, free
					b.Abort()
					b, c = nil, take(in, 1)
				}
				return 0
			}
		})
		defer w.close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		two := wantRows("two", testRows)
		two.Bytes *= 2
		tks, err := w.Grant(ctx, []Want{two})
		if err != nil {
			t.Fatalf("there is room: %v", err)
		}
		tks[0].Cancel()
		a.Abort()
		c.Abort()
	})
}

// A turn is kept until its holder leaves, however often it asks.
func TestTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		defer w.close()
		mine, err := w.Turn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		next := make(chan Ticket)
		go func() { next <- w.grant(want("next"))[0] }()
		ask := func(names ...string) []Ticket {
			t.Helper()
			var wants []Want
			for _, n := range names {
				wants = append(wants, want(n))
			}
			tks, err := mine.Grant(t.Context(), wants)
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			select {
			case <-next:
				t.Fatal("another was served meanwhile")
			default:
			}
			return tks
		}
		for _, tk := range ask("a", "b") {
			tk.Cancel()
		}
		last := ask("a")
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := w.Turn(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a second turn: %v", err)
		}
		mine.Leave()
		(<-next).Cancel()
		last[0].Cancel()
	})
}

func TestGrantTooLarge(t *testing.T) {
	w := newWorld(t, 4)
	defer w.close()
	f := func(n, rows int, numbers ...int) {
		t.Helper()
		wants := make([]Want, n)
		for i := range wants {
			wants[i] = wantRows(name(i), rows)
		}
		_, err := w.Grant(context.Background(), wants)
		if !errors.Is(err, arena.ErrTooLarge) {
			t.Fatalf("got %v", err)
		}
		for _, num := range numbers {
			if !strings.Contains(err.Error(), fmt.Sprint(num)) {
				t.Errorf("%q does not name %d", err, num)
			}
		}
	}
	f(5, testRows, 5*objectBytes(testRows), 4*objectBytes(testRows))
	f(1, 5*testRows, objectBytes(5*testRows), 4*objectBytes(testRows))
	w.wantInUse(0)
}

func TestGrantRefuses(t *testing.T) {
	w := newWorld(t, 1)
	defer w.close()
	for text, change := range map[string]func(*Want){
		"0 bytes":             func(w *Want) { w.Bytes = 0 },
		"-1 bytes":            func(w *Want) { w.Bytes = -1 },
		`unknown protocol ""`: func(w *Want) { w.Protocol = "" },
	} {
		wt := want("a")
		change(&wt)
		if _, err := w.Grant(context.Background(), []Want{wt}); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("got %v, want %q", err, text)
		}
	}
}

// Waiting ends with the deadline, says what it waited for, and leaves the line to the next.
func TestGrantDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		defer w.close()
		held := w.grant(want("held"))[0]
		var wg sync.WaitGroup
		for range 2 { // one waits for memory, one for its turn
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				defer cancel()
				_, err := w.Grant(ctx, []Want{want("late")})
				if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "after 3s") {
					t.Errorf("got %v", err)
				}
			})
		}
		wg.Wait()
		held.Cancel()
		w.grant(want("next"))[0].Cancel()
	})
}

func TestCloseWakesTheLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.grant(want("held"))
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if _, err := w.Grant(t.Context(), []Want{want("late")}); !errors.Is(err, ErrClosed) {
					t.Errorf("got %v", err)
				}
			})
		}
		synctest.Wait()
		w.close()
		wg.Wait()
	})
}
