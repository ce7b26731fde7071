// SPDX-License-Identifier: Apache-2.0

//go:build ignore

// Command paint makes the pictures of this folder that are not photographs, and photo.json:
//
//	go run examples/paint.go
package main

import (
	"encoding/base64"
	"encoding/json"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"log"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
)

const (
	dir           = "examples"
	width, height = 640, 427
	fine          = 3 // samples per pixel and direction, for smooth edges
)

func main() {
	log.SetFlags(0)
	save("street.jpg", func(f *os.File) error { return jpeg.Encode(f, street(), &jpeg.Options{Quality: 88}) })
	save("flag.png", func(f *os.File) error { return png.Encode(f, flag()) })
	photo, err := os.ReadFile(filepath.Join(dir, "cat.jpg"))
	if err != nil {
		log.Fatal("paint: run it from the top of the repository: ", err)
	}
	save("photo.json", func(f *os.File) error { return json.NewEncoder(f).Encode(request(photo)) })
}

func save(name string, write func(*os.File) error) {
	f, err := os.Create(filepath.Join(dir, name))
	if err == nil {
		err = write(f)
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		log.Fatal("paint: ", err)
	}
}

// request is a chat request about one picture.
func request(jpg []byte) any {
	type obj = map[string]any
	url := "data:image/jpeg;base64," + base64.StdEncoding.EncodeToString(jpg)
	return obj{
		"messages": []obj{{"role": "user", "content": []obj{
			{"type": "image_url", "image_url": obj{"url": url}},
			{"type": "text", "text": "Name the colors of the picture."},
		}}},
		"max_tokens":  40,
		"temperature": 0,
	}
}

// flag has three upright bands: blue, white, red.
func flag() image.Image {
	m := image.NewPaletted(image.Rect(0, 0, 300, 200), color.Palette{rgb(0x1f4fd8), rgb(0xffffff), rgb(0xe02020)})
	for i := range m.Pix {
		m.Pix[i] = uint8(i % m.Stride / 100)
	}
	return m
}

// canvas is the street under the brush, in fine pixels; all methods take whole ones.
type canvas struct{ *image.RGBA }

// street is a row of houses under a blue sky, a green hill behind them and a road in front.
func street() image.Image {
	c := canvas{image.NewRGBA(image.Rect(0, 0, width*fine, height*fine))}
	r := rand.New(rand.NewPCG(2, 3))
	c.sky()
	for _, p := range [][3]float64{{95, 70, 26}, {250, 48, 18}, {430, 84, 24}} {
		c.cloud(p[0], p[1], p[2])
	}
	c.oval(560, 62, 34, 34, rgb(0xffe27a))
	c.oval(150, 330, 330, 150, rgb(0x5fae57))
	c.oval(520, 340, 300, 130, rgb(0x4f9f4d))
	for i, h := range []struct{ x, w, h float64 }{{16, 112, 128}, {134, 96, 172}, {236, 128, 116}, {370, 104, 156}, {480, 136, 132}} {
		c.house(h.x, h.w, h.h, []int{0xd8452f, 0xf2c230, 0xf4efe2, 0xe88a2c, 0x4a86c8}[i], []int{0x5a3a2e, 0x8a3226, 0x3d4a63, 0x5a3a2e, 0x7a2f26}[i])
	}
	c.rect(0, 316, width, 34, rgb(0xc9c3b8)) // pavement
	for _, x := range []float64{130, 232, 366, 477, 622} {
		c.tree(x, r)
	}
	c.rect(0, 350, width, height-350, rgb(0x55585f))
	c.rect(0, 346, width, 5, rgb(0xa8a297))
	for x := 12.0; x < width; x += 92 {
		c.rect(x, 386, 52, 6, rgb(0xf3f1e6))
	}
	c.car(300, 372, rgb(0xc62828))
	return c.shrink(r)
}

func (c canvas) sky() {
	for y := range 350 {
		t := float64(y) / 350
		c.rect(0, float64(y), width, 1, mix(rgb(0x3f8fe0), rgb(0xcfe8fb), t))
	}
}

func (c canvas) cloud(x, y, r float64) {
	for _, p := range [][3]float64{{0, 0, 1}, {-1.1, 0.25, 0.75}, {1.15, 0.2, 0.8}, {0.5, -0.4, 0.7}, {-2, 0.45, 0.5}, {2.1, 0.4, 0.55}} {
		c.oval(x+p[0]*r, y+p[1]*r, p[2]*r*1.25, p[2]*r*0.8, rgb(0xfbfdff))
	}
}

// house stands on the pavement at y 318: a wall with a lit left edge, a roof, windows and a door.
func (c canvas) house(x, w, h float64, wall, roof int) {
	const ground = 318
	top := ground - h
	c.rect(x, top, w, h, rgb(wall))
	c.rect(x+w*0.94, top, w*0.06, h, mix(rgb(wall), rgb(0), 0.18))
	c.roof(x-5, top+1, w+10, h*0.34, rgb(roof))
	for row := top + 18; row+34 < ground-48; row += 46 {
		for k := range 3 {
			c.window(x+w*(0.1+0.3*float64(k)), row, w*0.2, 30)
		}
	}
	c.rect(x+w*0.4, ground-46, w*0.2, 46, mix(rgb(roof), rgb(0), 0.15))
	c.oval(x+w*0.57, ground-22, 1.8, 1.8, rgb(0xf0d890))
	c.window(x+w*0.1, ground-46, w*0.2, 28)
	c.window(x+w*0.7, ground-46, w*0.2, 28)
}

func (c canvas) window(x, y, w, h float64) {
	c.rect(x-2, y-2, w+4, h+4, rgb(0xfaf7ef))
	c.rect(x, y, w, h, rgb(0x6fa3c7))
	c.rect(x, y, w, h*0.45, rgb(0x9cc6e2))
	c.rect(x+w/2-1, y, 2, h, rgb(0xfaf7ef))
}

func (c canvas) tree(x float64, r *rand.Rand) {
	c.rect(x-4, 268, 8, 66, rgb(0x6b4a30))
	for range 26 {
		a, d := r.Float64()*2*math.Pi, math.Sqrt(r.Float64())*22
		green := mix(rgb(0x2f7d32), rgb(0x7cc35a), r.Float64())
		c.oval(x+d*math.Cos(a), 252+d*1.2*math.Sin(a), 10, 10, green)
	}
}

func (c canvas) car(x, y float64, paint color.RGBA) {
	c.oval(x+62, y+35, 66, 6, rgb(0x3c3e44))
	c.oval(x+58, y+2, 40, 22, paint)
	c.oval(x+58, y+4, 33, 17, rgb(0xa9d3ea))
	c.rect(x+56, y-19, 4, 24, paint)
	c.rect(x+6, y+4, 112, 24, paint)
	c.oval(x+8, y+16, 10, 12, paint)
	c.oval(x+116, y+16, 10, 12, paint)
	for _, wheel := range []float64{x + 30, x + 94} {
		c.oval(wheel, y+28, 12, 12, rgb(0x202226))
		c.oval(wheel, y+28, 5, 5, rgb(0xc8ccd2))
	}
}

func (c canvas) rect(x, y, w, h float64, k color.RGBA) {
	c.fill(x, y, w, h, k, func(u, v float64) bool { return true })
}

func (c canvas) oval(x, y, rx, ry float64, k color.RGBA) {
	c.fill(x-rx, y-ry, 2*rx, 2*ry, k, func(u, v float64) bool { return math.Hypot(2*u-1, 2*v-1) <= 1 })
}

// roof is a triangle that stands on the line from x to x+w at y.
func (c canvas) roof(x, y, w, h float64, k color.RGBA) {
	c.fill(x, y-h, w, h, k, func(u, v float64) bool { return math.Abs(2*u-1) <= v })
}

// fill colours the points of a box that are in the shape, given by their place in the box, 0..1.
func (c canvas) fill(x, y, w, h float64, k color.RGBA, in func(u, v float64) bool) {
	box := image.Rect(int(x*fine), int(y*fine), int((x+w)*fine), int((y+h)*fine)).Intersect(c.Rect)
	for py := box.Min.Y; py < box.Max.Y; py++ {
		for px := box.Min.X; px < box.Max.X; px++ {
			if in((float64(px)/fine-x)/w, (float64(py)/fine-y)/h) {
				c.SetRGBA(px, py, k)
			}
		}
	}
}

// shrink averages the fine pixels and adds a little grain.
func (c canvas) shrink(r *rand.Rand) image.Image {
	out := image.NewRGBA(image.Rect(0, 0, width, height))
	for i := range width * height {
		var sum [3]int
		for k := range fine * fine {
			p := c.RGBAAt(i%width*fine+k%fine, i/width*fine+k/fine)
			sum[0], sum[1], sum[2] = sum[0]+int(p.R), sum[1]+int(p.G), sum[2]+int(p.B)
		}
		grain := r.IntN(7) - 3
		for k := range sum {
			out.Pix[4*i+k] = uint8(min(max(sum[k]/(fine*fine)+grain, 0), 255))
		}
		out.Pix[4*i+3] = 255
	}
	return out
}

func rgb(v int) color.RGBA { return color.RGBA{uint8(v >> 16), uint8(v >> 8), uint8(v), 255} }

func mix(a, b color.RGBA, t float64) color.RGBA {
	at := func(x, y uint8) uint8 { return uint8(float64(x) + (float64(y)-float64(x))*t) }
	return color.RGBA{at(a.R, b.R), at(a.G, b.G), at(a.B, b.B), 255}
}
