// SPDX-License-Identifier: Apache-2.0

package media

import (
	"bytes"
	"encoding/base64"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"afterimage/internal/embedding"
)

// receive passes a URL through a Reception in pieces of the given sizes, over and over; at the places in copied, a byte
// comes as a copy.
func receive(url string, copied bool, sizes ...int) *Reception {
	r := NewReception()
	b := []byte(url)
	for i := 0; len(b) > 0; i++ {
		n := min(max(sizes[i%len(sizes)], 1), len(b))
		if copied && i%3 == 2 {
			r.Piece([]byte{b[0]}, true)
			b = b[1:]
			continue
		}
		r.Piece(b[:n], false)
		b = b[n:]
	}
	r.End(true)
	return r
}

// TestReception: however a URL comes, its file and its faults are those of ParseDataURL.
func TestReception(t *testing.T) {
	long := make([]byte, 300<<10)
	for i := range long {
		long[i] = byte(rand.New(rand.NewPCG(1, uint64(i))).Uint32())
	}
	payload := base64.StdEncoding.EncodeToString(long)
	var lines strings.Builder
	for i := 0; i < len(payload); i += 76 {
		lines.WriteString(payload[i:min(i+76, len(payload))] + "\r\n")
	}
	for _, url := range []string{
		"data:image/png;base64," + payload, "data:image/png;base64," + lines.String(), "DATA:a/b;x=y; Base64 ,QUJD", "data:;base64,QUI=", "data:;base64,QUI",
		"data:;base64,QQ==", "data:;base64,QQ=", "data:;base64,-_-_", "data:;base64,QU%4AD", "data:;base64, Q U J D ", "data:;base64,QUJD====",
		"data:;base64,", "data:;base64,Q", "data:;base64,QUJDR", "data:;base64,QQ==QQ==", "data:;base64,Q*==", "data:;base64,=", "data:;base64,QUJD%",
		"data:;base64,QU%4", "data:;base64,%zz", "data:;base64,data:;base64,QUJD", "data:;base64,QUJD\x7f",
		"data:,QUJD", "data:text/plain,a%20b", "http://x/,y", "data:;base64", strings.Repeat("x", 2*maxDataHeadBytes) + ",QUJD",
		"data:" + strings.Repeat("x", maxDataHeadBytes) + ";base64,QUJD", "",
	} {
		want, _, wantErr := ParseDataURL([]byte(url))
		for _, sizes := range [][]int{{1 << 30}, {1}, {3, 1, 64}, {31, 33}, {100 << 10}} {
			for _, copied := range []bool{false, true} {
				r := receive(url, copied, sizes...)
				if !r.Took() {
					if strings.Contains(url[:min(len(url), 40)], "ase64") && !copied && wantErr == nil {
						t.Errorf("%.40q in %v was left alone", url, sizes)
					}
					continue
				}
				file, digest, err := r.File()
				if (err == nil) != (wantErr == nil) || !bytes.Equal(file, want) || err == nil && digest != embedding.DigestOf(want) {
					t.Errorf("%.40q in %v, copied %v: %d bytes, %v; want %d bytes, %v", url, sizes, copied, len(file), err, len(want), wantErr)
				}
				var own *Error
				if err != nil && !errors.As(err, &own) {
					t.Errorf("%.40q: %T", url, err)
				}
			}
		}
	}
}

// TestReceptionOfOtherText: what is no printable ASCII is no base64, whatever was decoded before it.
func TestReceptionOfOtherText(t *testing.T) {
	r := NewReception()
	r.Piece([]byte("data:;base64,QUJD"), false)
	r.End(false)
	if _, _, err := r.File(); !r.Took() || err == nil {
		t.Errorf("took %v, %v", r.Took(), err)
	}
}

// FuzzReception holds it against ParseDataURL.
func FuzzReception(f *testing.F) {
	f.Add("data:image/png;base64,QUJDRA==", 3, 7, true)
	f.Add("data:;base64,Q U%4aJ-_", 1, 1, false)
	f.Fuzz(func(t *testing.T, url string, a, b int, copied bool) {
		want, _, wantErr := ParseDataURL([]byte(url))
		r := receive(url, copied, a%100, b%100)
		if !r.Took() {
			return
		}
		file, digest, err := r.File()
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("%q: %v, want %v", url, err, wantErr)
		}
		if err == nil && (!bytes.Equal(file, want) || digest != embedding.DigestOf(want)) {
			t.Fatalf("%q: got %q, want %q", url, file, want)
		}
	})
}

// BenchmarkReception is the whole of what a gateway does to a picture of 4 MiB on its way in.
func BenchmarkReception(b *testing.B) {
	url := []byte("data:image/png;base64," + base64.StdEncoding.EncodeToString(make([]byte, 3<<20)))
	work := make([]byte, len(url))
	b.SetBytes(int64(len(url)))
	for b.Loop() {
		copy(work, url)
		r := NewReception()
		for at := 0; at < len(work); at += 256 << 10 {
			r.Piece(work[at:min(at+256<<10, len(work))], false)
		}
		r.End(true)
		if _, _, err := r.File(); err != nil {
			b.Fatal(err)
		}
	}
}
