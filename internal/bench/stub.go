// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"encoding/json"
	"io"
	"net/http"

	"afterimage/internal/control"
	"afterimage/internal/embedding"
	"afterimage/internal/openai"
)

// What the stub workers say of themselves. The gateway checks that both agree.
const (
	stubModel  = "stub"
	stubEngine = "stub"
	stubCols   = 16
	stubRows   = 16
)

var (
	stubNamespace  = embedding.Namespace{Model: stubModel, Encoder: "stub", DType: embedding.Float32, Protocol: embedding.A1}
	stubProcessing = embedding.Processing{Background: embedding.DefaultBackground}
	stubGeometry   = control.Geometry{Rows: stubRows, Tokens: stubRows + 2, Bytes: stubRows*stubCols*4 + 128}
)

// maxStubBody bounds the bodies that stubs take.
const maxStubBody = 64 << 20

// StubEncoder returns a worker that answers as an Encoder does and does no work: it takes a whole
// encode body in and checks its shape, then says at once that all is delivered.
func StubEncoder() http.Handler {
	mux := http.NewServeMux()
	announce(mux, control.Announcement{
		Role: "encoder", Name: "encoder-0", Namespace: &stubNamespace, Processing: &stubProcessing, MaxRows: stubRows,
	})
	mux.HandleFunc("POST "+control.PathGeometry, func(w http.ResponseWriter, r *http.Request) {
		var req control.GeometryRequest
		var resp control.GeometryResponse
		if !readJSON(w, r, &req) {
			return
		}
		for range req.Sizes {
			resp.Sizes = append(resp.Sizes, stubGeometry)
		}
		writeJSON(w, resp)
	})
	mux.HandleFunc("POST "+control.PathEncode, func(w http.ResponseWriter, r *http.Request) {
		limits := control.EncodeLimits{Items: 32, ImageBytes: maxStubBody, TotalBytes: maxStubBody}
		req, _, err := control.ReadEncodeBody(r.Body, limits)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		resp := control.EncodeResponse{Encoder: "encoder-0"}
		for _, it := range req.Items {
			resp.Items = append(resp.Items, control.EncodedItem{
				Identifier: it.Identifier, Source: control.SourceEncoded, Delivered: true,
				Rows: stubRows, Cols: stubCols, Bytes: stubGeometry.Bytes,
			})
		}
		writeJSON(w, resp)
	})
	return mux
}

// StubPrefill returns a worker that answers as a P/D does and does no work: it grants memory that
// nobody writes, and answers every chat call at once with the same short text, never streamed.
func StubPrefill() http.Handler {
	mux := http.NewServeMux()
	announce(mux, control.Announcement{Role: "prefill", Name: "prefill-0", Context: 4096, PoolBytes: 1 << 30})
	mux.HandleFunc("POST "+control.PathPrepare, func(w http.ResponseWriter, r *http.Request) {
		var req control.PrepareRequest
		if !readJSON(w, r, &req) {
			return
		}
		resp := control.PrepareResponse{PromptTokens: 1}
		for _, it := range req.Items {
			grant := control.Grant{Address: "127.0.0.1:1", Transfer: "00000000000000000000000000000000", Attempt: 1, Bytes: it.Bytes}
			resp.Items = append(resp.Items, control.PreparedItem{State: control.Need, Grant: &grant})
		}
		writeJSON(w, resp)
	})
	mux.HandleFunc("POST "+control.PathChat, func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return
		}
		answer := openai.Completion{
			Head:    openai.Head{ID: "stub", Model: stubModel},
			Choices: []openai.Choice{{Content: "A picture.", End: openai.End{Reason: openai.FinishStop}}},
			Usage:   openai.Usage{PromptTokens: 1, CompletionTokens: 1},
		}
		answer.Write(w)
	})
	return mux
}

// announce serves the announcement of a stub.
func announce(mux *http.ServeMux, a control.Announcement) {
	a.Boot, a.Version, a.Model, a.Engine = "0", "stub", stubModel, stubEngine
	a.Cols, a.DType, a.Ready = stubCols, embedding.Float32, true
	mux.HandleFunc("GET "+control.PathWorker, func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, a) })
}

func readJSON(w http.ResponseWriter, r *http.Request, into any) bool {
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxStubBody)).Decode(into)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
	return err == nil
}

func writeJSON(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(body) // a caller that left is no concern
}

// stubAddresses is what a process of stub workers says when it listens.
type stubAddresses struct {
	Encoder string `json:"encoder"` // base URL
	Prefill string `json:"prefill"` // base URL
}

// ServeStubs runs one stub Encoder and one stub P/D on free ports of loopback until ctx ends, after it
// has written their addresses to w as one line of JSON.
func ServeStubs(ctx context.Context, w io.Writer) error {
	var at stubAddresses
	return serveAll(ctx, w, &at, map[*string]http.Handler{&at.Encoder: StubEncoder(), &at.Prefill: StubPrefill()})
}
