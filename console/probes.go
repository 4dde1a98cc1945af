// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package console

import (
	"net/http"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/internal/probe"
)

// RuntimeHealth returns an HTTP handler for the probes of a process without a cluster: GET /live and
// GET /ready respond with status 200, or with 503 and the reason. The process is ready if
// eventsourcing.Runtime.Ready and all given checks return nil. The checks must not block. On a node
// of a cluster, use sharding.NewHealth or cluster.Node.Health. The handler is not part of package
// eventsourcing, so that a program without an HTTP server does not contain net/http.
func RuntimeHealth(rt *eventsourcing.Runtime, ready ...func() error) http.Handler {
	return probe.Health(rt.Live, append([]func() error{rt.Ready}, ready...)...)
}

// AdminHandler returns an HTTP handler for the port of operators: health under /live and /ready,
// metrics under /metrics, and profiles for go tool pprof and go tool trace under /debug/pprof/. A nil
// handler is omitted. Health is that of a runtime, a node or package sharding; metrics is that of the
// program's metrics library.
//
// The handler has no authentication. A profile shows the inside of the process and costs time, so
// serve the handler on 127.0.0.1 or on a network of operators, and never on the port of the API.
// Nothing is added to http.DefaultServeMux.
func AdminHandler(health, metrics http.Handler) http.Handler {
	mux := http.NewServeMux()
	if health != nil {
		mux.Handle("GET /live", health)
		mux.Handle("GET /ready", health)
	}
	if metrics != nil {
		mux.Handle("GET /metrics", metrics)
	}
	mux.Handle("GET /debug/pprof/", probe.Profiles())
	return mux
}
