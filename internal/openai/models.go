// SPDX-License-Identifier: Apache-2.0

package openai

import (
	"net/http"
	"strconv"
)

// Model is one entry of GET /v1/models.
type Model struct {
	ID          string
	Created     int64 // unix seconds
	OwnedBy     string
	Root        string // what ID stands for, e.g. the model's path
	MaxModelLen int    // positions of one sequence
}

// AppendModels appends the body of GET /v1/models.
func AppendModels(dst []byte, models []Model) []byte {
	dst = append(dst, `{"object":"list","data":[`...)
	for i, m := range models {
		if i > 0 {
			dst = append(dst, ',')
		}
		created := strconv.FormatInt(m.Created, 10)
		dst = AppendString(append(dst, `{"id":`...), m.ID)
		dst = append(dst, `,"object":"model","created":`+created+`,"owned_by":`...)
		dst = AppendString(dst, m.OwnedBy)
		dst = AppendString(append(dst, `,"root":`...), m.Root)
		dst = append(dst, `,"parent":null,"max_model_len":`...)
		dst = strconv.AppendInt(dst, int64(m.MaxModelLen), 10)
		dst = append(dst, `,"permission":[{"id":`...)
		dst = AppendString(dst, "modelperm-"+m.ID)
		dst = append(dst, `,"object":"model_permission","created":`+created+`,"allow_create_engine":false,"allow_sampling":true,`+
			`"allow_logprobs":true,"allow_search_indices":false,"allow_view":true,"allow_fine_tuning":false,"organization":"*",`+
			`"group":null,"is_blocking":false}]}`...)
	}
	return append(dst, "]}"...)
}

// WriteModels writes the response of GET /v1/models.
func WriteModels(w http.ResponseWriter, models []Model) {
	writeJSON(w, http.StatusOK, AppendModels(nil, models))
}
