// SPDX-License-Identifier: Apache-2.0

package encoder

import (
	"context"
	"errors"
	"net/http"

	"afterimage/internal/control"
	"afterimage/internal/embedding"
	"afterimage/internal/media"
	"afterimage/internal/openai"
)

// errQueueFull refuses an image that would wait for the engine behind too many others.
var errQueueFull = errors.New("encoder: too many images wait for the engine")

// deliveryError: the embedding is there, a P/D did not get it.
type deliveryError struct{ err error }

func (e *deliveryError) Error() string { return "delivery: " + e.err.Error() }
func (e *deliveryError) Unwrap() error { return e.err }

// statusLeft stands for a caller that left.
const statusLeft = 499

// fault turns an error into what the gateway passes on. The caller's faults are 4xx; everything else
// is 5xx or 429, which the gateway repairs by asking another Encoder.
func fault(err error) *control.Error {
	var whole *control.Error
	var bad *media.Error
	var big *http.MaxBytesError
	var undelivered *deliveryError
	status, kind, message := http.StatusServiceUnavailable, openai.TypeUnavailable, err.Error()
	switch {
	case errors.As(err, &whole):
		return whole
	case errors.As(err, &bad):
		status, kind, message = http.StatusBadRequest, openai.TypeBadRequest, bad.Error()
	case errors.As(err, &big):
		status, kind = http.StatusRequestEntityTooLarge, openai.TypeTooLarge
	case errors.Is(err, errQueueFull):
		status, kind = http.StatusTooManyRequests, openai.TypeRateLimit
	case errors.Is(err, errAbsent):
		kind = control.TypeAbsent
	case errors.Is(err, context.Canceled):
		status, kind, message = statusLeft, "Canceled", "the call was cancelled"
	case errors.As(err, &undelivered):
		kind = control.TypeDelivery
	case errors.Is(err, embedding.ErrNotFinite):
		status, kind = http.StatusInternalServerError, openai.TypeInternal
		message = "the encoder produced values that are not finite for this image"
	}
	return &control.Error{Status: status, Type: kind, Message: message}
}
