// SPDX-License-Identifier: Apache-2.0

package encoder

import (
	"context"
	"errors"
	"net/http"

	"afterimage/internal/control"
	"afterimage/internal/embedding"
	"afterimage/internal/media"
)

// errQueueFull refuses an image that would wait for the engine behind too many others.
var errQueueFull = errors.New("encoder: too many images wait for the engine")

// fault turns an error into what the gateway passes on. The caller's faults are 4xx; everything else
// is 503, which the gateway repairs by asking another Encoder.
func fault(err error) *control.Error {
	var bad *media.Error
	var whole *control.Error
	switch {
	case errors.As(err, &whole):
		return whole
	case errors.As(err, &bad):
		return &control.Error{Status: http.StatusBadRequest, Type: "BadRequestError", Message: bad.Error()}
	case errors.Is(err, errQueueFull):
		return &control.Error{Status: http.StatusTooManyRequests, Type: "TooManyRequestsError", Message: err.Error()}
	case errors.Is(err, embedding.ErrNotFinite):
		return &control.Error{Status: http.StatusInternalServerError, Type: "InternalServerError",
			Message: "the encoder produced values that are not finite for this image"}
	case errors.Is(err, context.Canceled):
		return &control.Error{Status: 499, Type: "Canceled", Message: "the call was cancelled"}
	}
	return &control.Error{Status: http.StatusServiceUnavailable, Type: "ServiceUnavailableError", Message: err.Error()}
}
