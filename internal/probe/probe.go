// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package probe has the HTTP handlers of probes and of profiles. Nodes and runtimes share them.
package probe

import (
	"cmp"
	"fmt"
	"net/http"
	"runtime/pprof"
	"runtime/trace"
	"strconv"
	"time"
)

// Health returns a handler: GET /live and GET /ready respond with status 200, or with 503 and the
// first error of the checks.
func Health(live func() error, ready ...func() error) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /live", respond(live))
	mux.HandleFunc("GET /ready", respond(ready...))
	return mux
}

func respond(checks ...func() error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		text(w)
		for _, check := range checks {
			if err := check(); err != nil {
				w.WriteHeader(http.StatusServiceUnavailable)
				_, _ = fmt.Fprintln(w, err)
				return
			}
		}
		_, _ = fmt.Fprintln(w, "ok")
	}
}

func text(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
}

// maxSeconds limits the duration of a profile or a trace.
const maxSeconds = 300

// Profiles returns a handler for go tool pprof and go tool trace: GET /debug/pprof/ lists the
// profiles, and GET /debug/pprof/NAME returns one. The profiles "profile" and "trace" record for the
// number of seconds in the parameter "seconds", which is 30 and 1 by default, or until the request
// ends. Package net/http/pprof is not used, because its import adds the profiles to
// http.DefaultServeMux, which a program may serve in public.
func Profiles() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/{$}", func(w http.ResponseWriter, _ *http.Request) {
		text(w)
		_, _ = fmt.Fprint(w, "profile?seconds=30\ntrace?seconds=1\n")
		for _, p := range pprof.Profiles() {
			_, _ = fmt.Fprintf(w, "%s?debug=1 (%d)\n", p.Name(), p.Count())
		}
	})
	mux.HandleFunc("GET /debug/pprof/{name}", func(w http.ResponseWriter, r *http.Request) {
		p := pprof.Lookup(r.PathValue("name"))
		if p == nil {
			http.NotFound(w, r)
			return
		}
		debug, err := number(r, "debug", 0, 2)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		text(w)
		if debug == 0 {
			w.Header().Set("Content-Type", "application/octet-stream")
		}
		_ = p.WriteTo(w, debug)
	})
	mux.HandleFunc("GET /debug/pprof/profile", record(30, func(w http.ResponseWriter) (func(), error) {
		return pprof.StopCPUProfile, pprof.StartCPUProfile(w)
	}))
	mux.HandleFunc("GET /debug/pprof/trace", record(1, func(w http.ResponseWriter) (func(), error) {
		return trace.Stop, trace.Start(w)
	}))
	return mux
}

// record returns a handler that records until its time is over or the request ends.
func record(standard int, start func(http.ResponseWriter) (stop func(), err error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		seconds, err := number(r, "seconds", standard, maxSeconds)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		// The write time-out of the server is for responses that begin at once. Not all
		// ResponseWriters have deadlines.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Duration(seconds)*time.Second + time.Minute))
		text(w)
		w.Header().Set("Content-Type", "application/octet-stream")
		stop, err := start(w)
		if err != nil {
			http.Error(w, err.Error(), http.StatusConflict) // another recording is active
			return
		}
		defer stop()
		select {
		case <-time.After(time.Duration(seconds) * time.Second):
		case <-r.Context().Done():
		}
	}
}

// number returns an optional parameter of a request, which is between 0 and most.
func number(r *http.Request, name string, otherwise, most int) (int, error) {
	n, err := strconv.Atoi(cmp.Or(r.FormValue(name), strconv.Itoa(otherwise)))
	if err != nil || n < 0 || n > most {
		return 0, fmt.Errorf("parameter %q must be a number from 0 to %d", name, most)
	}
	return n, nil
}
