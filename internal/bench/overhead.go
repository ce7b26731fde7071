// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"afterimage/internal/control"
	"afterimage/internal/embedding"
)

// overhead measures what a gateway adds to a request with one image, over the same calls made without
// it.
type overhead struct {
	gateway string // base URL
	workers stubAddresses
	client  *http.Client
	image   []byte

	request []byte // the client's body, the image as a data URL
	spliced []byte // what P/D gets: an item in the place of the image
	item    control.PrepareItem
}

// ImageRequest returns a chat request about one PNG, which travels as a data URL.
func ImageRequest(model string, file []byte) []byte {
	const head = `{"model":%q,"max_tokens":1,"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,`
	b := fmt.Appendf(nil, head, model)
	b = base64.StdEncoding.AppendEncode(b, file)
	return append(b, `"}},{"type":"text","text":"What is this?"}]}]}`...)
}

// newOverhead prepares a measurement. Whatever a client without a gateway can know beforehand is made
// here and not in the measured time: the identifier and key of the image, and the body for P/D.
func newOverhead(gateway string, workers stubAddresses, image []byte) *overhead {
	id := embedding.NewIdentifier(embedding.DigestOf(image), stubProcessing, false, nil)
	return &overhead{
		gateway: gateway, workers: workers, image: image, client: &http.Client{Transport: &http.Transport{
			DisableCompression: true, MaxIdleConnsPerHost: 4, WriteBufferSize: 64 << 10, ReadBufferSize: 32 << 10,
		}},
		request: ImageRequest(stubModel, image),
		spliced: fmt.Appendf(nil, `{"model":%q,"max_tokens":1,"messages":[{"role":"user","content":[{"type":%q,"index":0},`+
			`{"type":"text","text":"What is this?"}]}]}`, stubModel, control.ItemPartType),
		item: control.PrepareItem{
			Identifier: id, Key: stubNamespace.Key(id), Tokens: stubGeometry.Tokens, Bytes: stubGeometry.Bytes,
			Contract: embedding.Contract{Rows: stubRows, Cols: stubCols, DType: embedding.Float32},
		},
	}
}

// pairs makes n requests each way, in turns, so that whatever else the machine does falls on both. It
// returns the times in milliseconds.
func (o *overhead) pairs(ctx context.Context, n int, done func(i int)) (via, direct []float64, err error) {
	defer o.client.CloseIdleConnections()
	for i := range n {
		for _, way := range []struct {
			call  func(context.Context) error
			times *[]float64
		}{{o.viaGateway, &via}, {o.withoutGateway, &direct}} {
			start := time.Now()
			if err := way.call(ctx); err != nil {
				return nil, nil, err
			}
			*way.times = append(*way.times, milliseconds(time.Since(start)))
		}
		done(i + 1)
	}
	return via, direct, nil
}

// viaGateway posts the request as any client would.
func (o *overhead) viaGateway(ctx context.Context) error {
	return o.post(ctx, o.gateway+control.PathChat, "application/json", bytes.NewReader(o.request), int64(len(o.request)), nil)
}

// withoutGateway makes the calls that the gateway would make: prepare, then encode and chat side by
// side.
func (o *overhead) withoutGateway(ctx context.Context) error {
	prepare, err := json.Marshal(control.PrepareRequest{
		Request: "direct", Engine: stubEngine, Items: []control.PrepareItem{o.item}, Uses: []int{0}, Chat: o.spliced,
	})
	if err != nil {
		return err
	}
	var granted control.PrepareResponse
	err = o.post(ctx, o.workers.Prefill+control.PathPrepare, "application/json", bytes.NewReader(prepare), int64(len(prepare)), &granted)
	if err != nil {
		return err
	}
	if len(granted.Items) != 1 || granted.Items[0].Grant == nil {
		return fmt.Errorf("bench: the stub granted %+v, want one item", granted)
	}
	body, length, err := control.NewEncodeBody(control.EncodeRequest{Request: "direct", Items: []control.EncodeItem{{
		Identifier: o.item.Identifier, Bytes: len(o.image), Rows: stubRows, Grants: []control.Grant{*granted.Items[0].Grant},
	}}}, [][]byte{o.image})
	if err != nil {
		return err
	}
	both, ctx := errgroup.WithContext(ctx)
	both.Go(func() error {
		return o.post(ctx, o.workers.Encoder+control.PathEncode, control.EncodeContentType, body, length, new(control.EncodeResponse))
	})
	both.Go(func() error {
		return o.post(ctx, o.workers.Prefill+control.PathChat, "application/json", bytes.NewReader(o.spliced), int64(len(o.spliced)), nil)
	})
	return both.Wait()
}

// post makes one call and reads its answer to the end; into may be nil.
func (o *overhead) post(ctx context.Context, url, contentType string, body io.Reader, length int64, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, body)
	if err != nil {
		return err
	}
	req.ContentLength = length
	req.Header.Set("Content-Type", contentType)
	resp, err := o.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("bench: %s answered %d: %.200s", url, resp.StatusCode, answer)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(answer, into)
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
