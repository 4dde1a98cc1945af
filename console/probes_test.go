// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package console_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/refold-io/refold/console"
	"github.com/refold-io/refold/eventsourcing"
)

func httpGet(h http.Handler, path string) (code int, body string) {
	r := httptest.NewRecorder()
	h.ServeHTTP(r, httptest.NewRequest(http.MethodGet, path, nil))
	return r.Code, strings.TrimSpace(r.Body.String())
}

// The probes and the profiles of a process without a cluster.
func ExampleAdminHandler() {
	rt, err := eventsourcing.Open(eventsourcing.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	metrics := http.NotFoundHandler() // for example promhttp.Handler()
	admin := console.AdminHandler(console.RuntimeHealth(rt), metrics)
	// Serve it on an address that only operators reach:
	_ = http.Server{Addr: "127.0.0.1:6060", Handler: admin, ReadTimeout: 5 * time.Second, WriteTimeout: 5 * time.Second}

	fmt.Println(httpGet(admin, "/ready"))
	code, _ := httpGet(admin, "/debug/pprof/heap")
	fmt.Println(code)
	fmt.Println(rt.Close(context.Background()))
	fmt.Println(httpGet(admin, "/ready"))
	// Output:
	// 200 ok
	// 200
	// <nil>
	// 503 eventsourcing: runtime or host closed: eventsourcing: entity stopped
}

func TestAdminHandler(t *testing.T) {
	t.Parallel()
	text := func(s string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = fmt.Fprint(w, s, r.URL.Path) })
	}
	h := console.AdminHandler(text("health "), text("metrics "))
	for _, test := range []struct {
		path string
		code int
		body string // the begin of the response
	}{
		{"/live", 200, "health /live"},
		{"/ready", 200, "health /ready"},
		{"/metrics", 200, "metrics /metrics"},
		{"/", 404, ""},
		{"/debug/pprof/", 200, "profile?seconds=30"},
		{"/debug/pprof/goroutine?debug=1", 200, "goroutine profile:"},
		{"/debug/pprof/heap", 200, "\x1f\x8b"}, // gzip
		{"/debug/pprof/profile?seconds=0", 200, "\x1f\x8b"},
		{"/debug/pprof/trace?seconds=0", 200, "go 1."},
		{"/debug/pprof/profile?seconds=301", 400, "parameter \"seconds\""},
		{"/debug/pprof/heap?debug=x", 400, "parameter \"debug\""},
		{"/debug/pprof/unknown", 404, ""},
		{"/debug/pprof/cmdline", 404, ""},
	} {
		if code, body := httpGet(h, test.path); code != test.code || !strings.HasPrefix(body, test.body) {
			t.Errorf("GET %s: %d %.40q, want %d %q", test.path, code, body, test.code, test.body)
		}
	}
	none := console.AdminHandler(nil, nil)
	for _, path := range []string{"/live", "/ready", "/metrics"} {
		if code, _ := httpGet(none, path); code != http.StatusNotFound {
			t.Errorf("GET %s without a handler: %d, want 404", path, code)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/debug/pprof/trace?seconds=300", nil)) // ends with its request
	post := httptest.NewRecorder()
	h.ServeHTTP(post, httptest.NewRequest(http.MethodPost, "/debug/pprof/heap", nil))
	if post.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST of a profile: %d, want 405", post.Code)
	}
	if _, pattern := http.DefaultServeMux.Handler(httptest.NewRequest(http.MethodGet, "/debug/pprof/", nil)); pattern != "" {
		t.Errorf("http.DefaultServeMux serves profiles at %q, want none", pattern)
	}
}
