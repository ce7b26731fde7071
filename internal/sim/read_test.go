// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func read(t *testing.T, format Format, text string) *Trace {
	t.Helper()
	tr, err := Read(strings.NewReader(text), format, DefaultSizes())
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// images spells a trace out: per request its second and its images.
func images(t *Trace) (out [][]float64) {
	for i, r := range t.Requests {
		row := []float64{r.At.Seconds()}
		for _, u := range t.Uses(i) {
			row = append(row, float64(u.Image))
		}
		out = append(out, row)
	}
	return out
}

func TestReadNative(t *testing.T) {
	csv := "time,request,image,bytes\n10,r1,cat,1000\n10,r1,dog,\n9.5,r0,cat,1000\n11,r2,,\n10,r1,cat,1000\n"
	json := `{"time":10,"request":"r1","image":"cat","bytes":1000}
{"time":10,"request":"r1","image":"dog"}

{"time":9.5,"request":"r0","image":"cat","bytes":1000}
{"time":11,"request":"r2"}
{"time":10,"request":"r1","image":"cat","bytes":1000}`
	want := [][]float64{{0, 0}, {0.5, 0, 1, 0}, {1.5}}
	for name, text := range map[string]string{"csv": csv, "crlf and mark": "\xef\xbb\xbf" + strings.ReplaceAll(csv, "\n", "\r\n"), "json": json} {
		tr := read(t, Native, text)
		if d := cmp.Diff(want, images(tr)); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
		if tr.Images != 2 || tr.Uses(1)[0].Bytes != 1000 || int(tr.Uses(1)[1].Bytes) != DefaultSizes().ItemBytes {
			t.Errorf("%s: %d images, sizes %+v", name, tr.Images, tr.Uses(1))
		}
	}
}

func TestReadPublicFormats(t *testing.T) {
	azure := read(t, Azure, "TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n2024-10-15 00:00:00.500000,2,900,12\n2024-10-15 00:00:02,0,40,7\n")
	if n := len(azure.Uses(0)); n != 2 || azure.Requests[1].At != 1500*time.Millisecond || azure.Requests[0].Text != 900-512 {
		t.Errorf("azure: %d images, %+v", n, azure.Requests)
	}
	mooncake := read(t, Mooncake, `{"timestamp":1000,"input_length":1100,"output_length":5,"hash_ids":[7,8]}
{"timestamp":3000,"input_length":512,"output_length":6,"hash_ids":[7]}`)
	if d := cmp.Diff([][]float64{{0, 0, 1}, {2, 0}}, images(mooncake)); d != "" || mooncake.Requests[0].Text != 76 {
		t.Errorf("mooncake: text %d, images (-want +got):\n%s", mooncake.Requests[0].Text, d)
	}
	bailian := read(t, Bailian, `{"chat_id":5,"parent_chat_id":-1,"timestamp":0,"input_length":300,"output_length":5,"type":"image","hash_ids":[1]}
{"chat_id":6,"parent_chat_id":5,"timestamp":1.5,"input_length":500,"output_length":5,"type":"image","hash_ids":[1]}
{"chat_id":7,"parent_chat_id":6,"timestamp":2,"input_length":500,"output_length":5,"type":"image","hash_ids":[1]}
{"chat_id":8,"parent_chat_id":-1,"timestamp":3,"input_length":20,"output_length":5,"type":"text","hash_ids":[1]}
{"chat_id":9,"parent_chat_id":-1,"timestamp":4,"input_length":300,"output_length":5,"type":"image","hash_ids":[1]}`)
	if d := cmp.Diff([][]float64{{0, 0}, {1.5, 0}, {2, 0}, {3}, {4, 1}}, images(bailian)); d != "" {
		t.Errorf("bailian (-want +got):\n%s", d)
	}
	for name, tr := range map[string]*Trace{"popularity": azure, "block-as-image": mooncake, "conversation": bailian} {
		if !strings.HasPrefix(tr.Assumed, name+":") {
			t.Errorf("assumption %q does not name %s", tr.Assumed, name)
		}
	}
}

func TestReadRefuses(t *testing.T) {
	f := func(format Format, text, want string) {
		t.Helper()
		_, err := Read(strings.NewReader(text), format, DefaultSizes())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	f("xml", "", "unknown format")
	f(Native, "", "no requests")
	f(Native, "time,request,image\n", "no requests")
	f(Native, "time,image\n1,2\n", `line 1: no column "request"`)
	f(Native, "time,request,image\n1,a,b\nx,a,b\n", `line 3: time = "x": write seconds`)
	f(Native, "time,request,image\n-1,a,b\n", "outside of 0")
	f(Native, "time,request,image\nNaN,a,b\n", "outside of 0")
	f(Native, "time,request,image\n1e300,a,b\n", "outside of 0")
	f(Native, "time,request,image\n1,,b\n", "request")
	f(Native, "time,request,image\n1,a\n", "2 values for the 3 columns")
	f(Native, "time,request,image\n1,a,b,c\n", "more than the 3 values")
	f(Native, "time,request,image,bytes\n1,a,b,-5\n", "bytes")
	f(Native, "time,request,image,bytes\n1,a,b,9999999999\n", "bytes")
	f(Native, `{"time":1}`, "time and request are required")
	f(Native, "{\"time\":1,\"request\":1}\n{", "line 2")
	f(Native, `{"time":"x","request":1}`, "line 1")
	f(Azure, "TIMESTAMP,NumImages\n", `no column "contexttokens"`)
	f(Azure, "TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n1,99999,1,1\n", "numimages")
	f(Mooncake, "a,b\n", "no JSON object")
	f(Mooncake, `{"timestamp":1}`, "are required")
	f(Mooncake, `{"timestamp":1,"input_length":-1,"output_length":1}`, "input_length")
	f(Bailian, `{"timestamp":1,"input_length":1,"output_length":1}`, "chat_id and type")
}

func TestTraceSurvivesItsFile(t *testing.T) {
	s := DefaultSynthetic()
	s.Requests, s.Images, s.Repeat = 500, Mix{{0, 1}, {3, 1}}, 0.3
	a, err := Generate(s)
	if err != nil {
		t.Fatal(err)
	}
	var w bytes.Buffer
	if err := a.Write(&w); err != nil {
		t.Fatal(err)
	}
	b := read(t, Native, w.String())
	if a.Items() != b.Items() || len(a.Requests) != len(b.Requests) || a.Items() == 0 {
		t.Fatalf("%d requests with %d images became %d with %d", len(a.Requests), a.Items(), len(b.Requests), b.Items())
	}
	m := DefaultModel()
	for _, p := range Policies(1 << 30) {
		if p.Routing == Affinity {
			continue // it depends on how images are numbered
		}
		x, errX := Run(t.Context(), a, m, p)
		y, errY := Run(t.Context(), b, m, p)
		if errX != nil || errY != nil || x.Encoded != y.Encoded || math.Abs(x.P90-y.P90) > 1e-3 {
			t.Errorf("%s: %+v and %+v, %v, %v", p.Name, x, y, errX, errY)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add("native", "time,request,image,bytes\n10,r1,cat,1000\n")
	f.Add("native", `{"time":10,"request":"r1","image":"cat","bytes":1000}`)
	f.Add("azure", "TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n2024-10-15 00:00:00.5,2,900,12\n")
	f.Add("mooncake", `{"timestamp":1000,"input_length":1100,"output_length":5,"hash_ids":[7,8]}`)
	f.Add("bailian", `{"chat_id":5,"parent_chat_id":-1,"timestamp":0,"input_length":300,"output_length":5,"type":"image"}`)
	f.Fuzz(func(t *testing.T, format, text string) {
		tr, err := Read(strings.NewReader(text), Format(format), DefaultSizes())
		if err != nil {
			return
		}
		for _, p := range Policies(1 << 20) {
			if _, err := Run(t.Context(), tr, DefaultModel(), p); err != nil {
				t.Fatal(err)
			}
		}
	})
}
