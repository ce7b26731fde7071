// SPDX-License-Identifier: Apache-2.0

package tracing

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
)

// The JSON of OTLP: https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding. Ids are in hex, 64-bit
// numbers are strings.
type (
	exportRequest struct {
		ResourceSpans []resourceSpans `json:"resourceSpans"`
	}
	resourceSpans struct {
		Resource   resource     `json:"resource"`
		ScopeSpans []scopeSpans `json:"scopeSpans"`
	}
	resource struct {
		Attributes []attribute `json:"attributes"`
	}
	scopeSpans struct {
		Scope scope      `json:"scope"`
		Spans []wireSpan `json:"spans"`
	}
	scope struct {
		Name    string `json:"name"`
		Version string `json:"version,omitempty"`
	}
	wireSpan struct {
		TraceID    string      `json:"traceId"`
		SpanID     string      `json:"spanId"`
		TraceState string      `json:"traceState,omitempty"`
		Parent     string      `json:"parentSpanId,omitempty"`
		Name       string      `json:"name"`
		Kind       Kind        `json:"kind"`
		Start      string      `json:"startTimeUnixNano"`
		End        string      `json:"endTimeUnixNano"`
		Attributes []attribute `json:"attributes,omitempty"`
		Status     *status     `json:"status,omitempty"`
	}
	attribute struct {
		Key   string `json:"key"`
		Value value  `json:"value"`
	}
	value struct {
		String *string  `json:"stringValue,omitempty"`
		Bool   *bool    `json:"boolValue,omitempty"`
		Int    string   `json:"intValue,omitempty"`
		Double *float64 `json:"doubleValue,omitempty"`
	}
	status struct {
		Code    int    `json:"code"`
		Message string `json:"message,omitempty"`
	}
)

// statusError is the code of spans that failed.
const statusError = 2

// encode returns the body of an export.
func (t *Tracer) encode(batch []*Span) []byte {
	spans := make([]wireSpan, len(batch))
	for i, s := range batch {
		spans[i] = s.wire()
	}
	b, err := json.Marshal(exportRequest{[]resourceSpans{{
		Resource: resource{attributesOf([]any{
			"service.name", t.cfg.Service, "service.instance.id", t.cfg.Name, "service.version", t.cfg.Version,
		})},
		ScopeSpans: []scopeSpans{{Scope: scope{"afterimage", t.cfg.Version}, Spans: spans}},
	}}})
	if err != nil {
		panic("BUG: a span that is no JSON: " + err.Error())
	}
	return b
}

func (s *Span) wire() wireSpan {
	w := wireSpan{
		TraceID: hex.EncodeToString(s.context.Trace[:]), SpanID: hex.EncodeToString(s.context.Span[:]), TraceState: s.context.State,
		Name: s.name, Kind: s.kind, Start: strconv.FormatInt(s.start.UnixNano(), 10), End: strconv.FormatInt(s.end.UnixNano(), 10),
		Attributes: attributesOf(s.attributes),
	}
	if s.parent != [8]byte{} {
		w.Parent = hex.EncodeToString(s.parent[:])
	}
	if s.fault != "" {
		w.Status = &status{statusError, s.fault}
	}
	return w
}

// attributesOf turns names and values, in turns, into attributes.
func attributesOf(all []any) (out []attribute) {
	for i := 0; i+1 < len(all); i += 2 {
		var v value
		switch x := all[i+1].(type) {
		case bool:
			v.Bool = &x
		case int:
			v.Int = strconv.Itoa(x)
		case int64:
			v.Int = strconv.FormatInt(x, 10)
		case float64:
			if math.IsNaN(x) || math.IsInf(x, 0) {
				continue // JSON has none
			}
			v.Double = &x
		default:
			text := fmt.Sprint(x)
			v.String = &text
		}
		out = append(out, attribute{fmt.Sprint(all[i]), v})
	}
	return out
}
