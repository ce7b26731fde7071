// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"fmt"
	"math"
	"net/url"
	"strings"

	"afterimage/internal/control"
	"afterimage/internal/proxy"
)

// log writes the line of a request that has ended, as t tells it: when it was through with each stage, counted
// from its arrival, and where each item came from.
func (g *Gateway) log(req *request, out *proxy.Reply, t control.Trace) {
	l := proxy.Line{Request: req.id, Path: req.path, Tenant: req.pass.Tenant(), Status: t.Status, In: req.in, Err: t.Error}
	if req.scan != nil {
		l.Model = shortModel(req.scan.Model)
	}
	if t.Prefill != "" {
		l.More = append(l.More, "prefill", t.Prefill)
	}
	if t.Attempts > 1 {
		l.More = append(l.More, "attempts", t.Attempts)
	}
	if len(t.Items) > 0 {
		l.More = append(l.More, "items", sourcesOf(t.Items))
	}
	for _, s := range t.Stages {
		l.More = append(l.More, s.Name+"_ms", math.Round(s.MS*1000)/1000)
	}
	l.More = append(l.More, req.shown...)
	l.Log(g.cfg.Logger, out)
}

// shortModel bounds what a client may have put for a model.
func shortModel(name string) string { return fmt.Sprintf("%.64s", name) }

// sourcesOf says where each item came from, in prompt order: source@encoder/road.
func sourcesOf(items []control.TraceItem) string {
	var b strings.Builder
	for i, it := range items {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(string(it.Source))
		if it.Encoder != "" {
			b.WriteString("@" + it.Encoder)
		}
		if it.Road != "" {
			b.WriteString("/" + string(it.Road))
		}
	}
	return b.String()
}

// show notes what may be shown of the request's parameters, while its body is there: no prompt, no picture, no
// query of a URL.
func (req *request) show() {
	req.shown = append([]any{"messages", req.scan.Messages}, req.scan.Shown()...)
	var parts []string
	for _, i := range req.uses {
		m := req.images[i]
		parts = append(parts, fmt.Sprintf("%s %s %dx%d %dB", strings.TrimSpace(whereFrom(m.url)+" "+string(m.how)), m.info.Format, m.info.Width, m.info.Height, m.size))
	}
	if len(parts) > 0 {
		req.shown = append(req.shown, "media", strings.Join(parts, ", "))
	}
}

// whereFrom says how a picture came: "data", or its URL without what may be secret in it.
func whereFrom(raw string) string {
	if raw == "" {
		return "data"
	}
	u, err := url.Parse(raw)
	if err != nil {
		return "url"
	}
	u = &url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}
	return fmt.Sprintf("%.256s", u)
}
