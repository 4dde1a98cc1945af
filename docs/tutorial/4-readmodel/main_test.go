// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/refold-io/refold/internal/testkit/pgtest"
)

// A goroutine of goleveldb ends 30 s after the database is closed.
func TestMain(m *testing.M) {
	pgtest.Main(m, goleak.IgnoreTopFunction("github.com/syndtr/goleveldb/leveldb.(*DB).mpoolDrain"))
}

func Example() {
	dir, err := os.MkdirTemp("", "readmodel-")
	if err == nil {
		defer os.RemoveAll(dir) //nolint:errcheck // a temporary directory
		err = run(context.Background(), dir, "")
	}
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// milk  1 units, 120 cents
	// tea   3 units, 1050 cents
}

// The read model counts each event once, also after a restart and a rebuild, and is served over
// HTTP.
func TestReadModel(t *testing.T) {
	t.Parallel()
	for name, address := range map[string]func(t *testing.T) string{
		"leveldb":  func(t *testing.T) string { t.Helper(); return t.TempDir() },
		"postgres": func(t *testing.T) string { t.Helper(); return pgtest.DSN(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := address(t)
			for run := 1; run <= 2; run++ {
				readModel(t, at, run)
			}
		})
	}
}

func readModel(t *testing.T, address string, run int) {
	t.Helper()
	s, err := open(t.Context(), address)
	defer func() {
		if closed := s.close(); closed != nil {
			t.Error(closed)
		}
	}()
	if err != nil {
		t.Fatal(err)
	}
	request(t, s, http.MethodPost, "/orders/42", `{"Product":"tea","Units":2,"Price":350}`, http.StatusOK, fmt.Sprintln(700*run))
	request(t, s, http.MethodPost, "/orders/42", `{"Product":"tea"}`, http.StatusBadRequest, "at least one unit")
	request(t, s, http.MethodPost, "/orders/42", `{"Product":"tea","Units":99}`, http.StatusUnprocessableEntity, "at most 100 units")
	for range 2 { // all events count once, however often the projection runs
		if err = s.sales.CatchUp(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	request(t, s, http.MethodGet, "/sales", "", http.StatusOK, fmt.Sprintf(`[{"Product":"tea","Units":%d,"Revenue":%d}]`, 2*run, 700*run))
	if s.sales.CanRebuild() {
		if err = s.sales.Rebuild(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err = s.sales.CatchUp(t.Context()); err != nil {
			t.Fatal(err)
		}
		request(t, s, http.MethodGet, "/sales", "", http.StatusOK, fmt.Sprintf(`[{"Product":"tea","Units":%d,"Revenue":%d}]`, 2*run, 700*run))
	}
}

// request sends a request and checks the status, and that the body contains a text.
func request(t *testing.T, s *shop, method, path, body string, status int, want string) {
	t.Helper()
	w := httptest.NewRecorder()
	s.handler().ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
	if w.Code != status || !strings.Contains(w.Body.String(), want) {
		t.Errorf("%s %s: status %d, body %q; want %d and %q", method, path, w.Code, w.Body, status, want)
	}
}
