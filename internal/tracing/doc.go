// SPDX-License-Identifier: Apache-2.0

// Package tracing carries the W3C trace context of a request from call to call, and sends spans to an OTLP
// receiver, as JSON over HTTP.
//
// Without a Tracer, which may be nil, a context goes through as it came. With one, a request without a context
// gets a new one, each step worth a span becomes the parent of the calls that are made in it, and spans that have
// ended wait in a bounded queue for a goroutine that sends them. Nothing ever waits for that: what finds the queue
// full is dropped and counted, as is what the receiver does not take.
//
// The exporter is small on purpose: the official one brings 175 packages and 8 MB.
package tracing
