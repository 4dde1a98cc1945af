// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/refold-io/refold/plugins/inmem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A browser with a token sees the order that the service has changed, with its state. A browser
// without a token sees nothing.
func TestConsoleShowsOrder(t *testing.T) {
	t.Parallel()
	db, err := inmem.Open()
	if err != nil {
		t.Fatal(err)
	}
	s, err := open(db)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(s.handler())
	defer func() {
		server.Close()
		if closed := s.close(); closed != nil {
			t.Error(closed)
		}
	}()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	client := server.Client()
	client.Jar = jar
	defer client.CloseIdleConnections()

	request(t, client, http.MethodPost, server.URL+"/orders/42", `{"Product":"tea","Units":2,"Price":350}`, http.StatusOK, "700")
	page := server.URL + "/console/entities/order%7C42"
	request(t, client, http.MethodGet, page, "", http.StatusUnauthorized, "")
	request(t, client, http.MethodGet, s.console.LoginURL(server.URL), "", http.StatusOK, "Overview")
	request(t, client, http.MethodGet, page, "", http.StatusOK, "700")
	request(t, client, http.MethodGet, page, "", http.StatusOK, "added")
}

// request sends a request and checks the status, and that the body contains a text.
func request(t *testing.T, client *http.Client, method, url, body string, status int, want string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close() //nolint:errcheck // it has been read
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != status || !strings.Contains(string(text), want) {
		t.Errorf("%s %s: status %d, error %v, body %.2000q; want %d and %q", method, url, response.StatusCode, err, text, status, want)
	}
}
