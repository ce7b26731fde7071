// SPDX-License-Identifier: Apache-2.0

//go:build !amd64

package openai

func vectors(b []byte, least int8) int { return windows(b, least) }
