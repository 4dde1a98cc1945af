// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/examples/bank/money"
)

// client calls the API of a bank, and checks each answer against the OpenAPI file.
type client struct {
	handler http.Handler
	spec    *spec
}

func newClient(t *testing.T, b *bank) *client {
	t.Helper()
	return &client{newAPI(b, slog.New(slog.DiscardHandler)), readSpec(t, openAPI)}
}

// send returns the status and the body of an answer.
func (c *client) send(t *testing.T, method, path, body string, header ...string) (int, string) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	c.handler.ServeHTTP(w, r)
	answer := w.Body.String()
	c.check(t, r, w)
	return w.Code, answer
}

func (c *client) check(t *testing.T, r *http.Request, w *httptest.ResponseRecorder) {
	t.Helper()
	op, ok := c.spec.operation(r.Method, r.URL.EscapedPath())
	if !ok {
		return // the path is not part of the API
	}
	response, ok := op.Responses[strconv.Itoa(w.Code)]
	if !ok {
		t.Errorf("%s: the OpenAPI file does not document status %d: %s", op.OperationID, w.Code, w.Body)
		return
	}
	want := response.Content["application/json"].Schema
	if want == nil {
		return
	}
	if kind := w.Header().Get("Content-Type"); kind != "application/json" {
		t.Errorf("%s: Content-Type %q, want application/json", op.OperationID, kind)
	}
	var value any
	if err := json.Unmarshal(w.Body.Bytes(), &value); err != nil {
		t.Errorf("%s: the response is not JSON: %v: %s", op.OperationID, err, w.Body)
		return
	}
	if err := c.spec.check(want, value, op.OperationID); err != nil {
		t.Errorf("the response does not match the schema: %v: %s", err, w.Body)
	}
}

func TestAPI(t *testing.T) {
	t.Parallel()
	b := newBank(t, testRates)
	c := newClient(t, b)
	long := strings.Repeat("x", 600)
	for _, step := range []struct {
		method, path, body string
		status             int
		want               string // part of the answer
	}{
		{"GET", "/", "", 200, "curl -X POST http://example.com/accounts "},
		{"GET", "/openapi.json", "", 200, `"openapi": "3.1.0"`},
		{"GET", "/nowhere", "", 404, ""},
		{"DELETE", "/accounts/alice", "", 405, ""},
		{"GET", "/accounts/alice", "", 404, `"code":"bank/not_open"`},
		{"POST", "/accounts/alice/deposits", `{"amount": "1", "currency": "USD"}`, 404, `"code":"bank/not_open"`},

		{"POST", "/accounts", `{"id": "alice", "currency": "USD", "owner": "Alice"}`, 200, `"balance":"0.00","currency":"USD"`},
		{"POST", "/accounts", `{"id": "alice", "currency": "USD", "owner": "Alice"}`, 200, `"balance":"0.00","currency":"USD"`},
		{"POST", "/accounts", `{"id": "alice", "currency": "TWD", "owner": "Alice"}`, 409, `"code":"bank/other_terms"`},
		{"POST", "/accounts", `{"id": "bob", "currency": "TWD"}`, 200, ""},
		{"POST", "/accounts", `{"id": "carol", "currency": "EUR"}`, 409, `"code":"bank/unknown_currency","message":"currency: `},
		{"POST", "/accounts", `{"currency": "USD"}`, 400, `"message":"id: missing"`},
		{"POST", "/accounts", `{"id": "` + long + `", "currency": "USD"}`, 400, "at most 512"},

		{"POST", "/accounts/alice/deposits", `{"amount": "100", "currency": "USD", "request_id": "r1"}`, 200, `{"balance":"100.00","currency":"USD"}`},
		{"POST", "/accounts/alice/withdrawals", `{"amount": "10.50", "currency": "USD"}`, 200, `{"balance":"89.50","currency":"USD"}`},
		{"POST", "/accounts/alice/deposits", `{"amount": "100.00", "currency": "USD", "request_id": "r1"}`, 200, `{"balance":"100.00","currency":"USD"}`},
		{"POST", "/accounts/alice/deposits", `{"amount": "101", "currency": "USD", "request_id": "r1"}`, 409, `"code":"bank/request_reused"`},
		{"POST", "/accounts/alice/deposits", `{"amount": "1.005", "currency": "USD"}`, 409, `"code":"bank/too_fine"`},
		{"POST", "/accounts/alice/deposits", `{"amount": "99999999999999999999", "currency": "USD"}`, 409, `"code":"bank/overflow"`},
		{"POST", "/accounts/alice/deposits", `{"amount": "-1", "currency": "USD"}`, 409, `"code":"bank/not_positive"`},
		{"POST", "/accounts/alice/deposits", `{"amount": "ten", "currency": "USD"}`, 400, `"code":"bank/bad_request","message":"amount: not an amount`},
		{"POST", "/accounts/alice/withdrawals", `{"amount": "1000", "currency": "USD"}`, 409, `"code":"bank/insufficient_funds"`},
		{"POST", "/accounts/alice/withdrawals", `{"amount": "1", "currency": ""}`, 409, `"code":"bank/unknown_currency"`},
		{"POST", "/accounts/alice/transfers", `{"amount": "10", "currency": "USD", "to": "bob"}`, 200, `{"balance":"79.50","currency":"USD","transfer":1}`},
		{"POST", "/accounts/alice/transfers", `{"amount": "10", "currency": "USD"}`, 409, `"code":"bank/bad_destination"`},
		{"POST", "/accounts/alice/transfers", `{"amount": "x", "currency": "USD", "to": "bob"}`, 400, "amount"},
		{"POST", "/accounts/alice/close", `{}`, 409, `"code":"bank/`},

		{"GET", "/accounts/alice?at_seq=2", "", 200, `"balance":"100.00"`},
		{"GET", "/accounts/alice?at_time=2001-01-01", "", 404, `"code":"bank/not_open"`},
		{"GET", "/accounts/alice?without=3&without=2&at_seq=3", "", 200, `"balance":"0.00"`},
		{"GET", "/accounts/alice?in=TWD&at_seq=2", "", 200, `"value":{"amount":"3215.00","currency":"TWD","rate":"32.15","source":"test","as_of":"2026-07-01T00:00:00Z"}`},
		{"GET", "/accounts/alice?in=EUR", "", 409, `"code":"bank/unknown_currency"`},
		{"GET", "/accounts/alice?in=NTD&at_seq=2", "", 200, `"value":{"amount":"3215.00","currency":"TWD"`},
		{"POST", "/accounts", `{"id": "dora", "currency": "NTD"}`, 200, `"currency":"TWD"`},
		{"POST", "/accounts/dora/deposits", `{"amount": "100", "currency": "NTD"}`, 200, `{"balance":"100.00","currency":"TWD"}`},
		{"GET", "/accounts/alice?at_seq=0", "", 400, "at_seq"},
		{"GET", "/accounts/alice?at_seq=-1", "", 400, "at_seq"},
		{"GET", "/accounts/alice?at_time=noon", "", 400, "at_time"},
		{"GET", "/accounts/alice?without=x", "", 400, "without"},
		{"GET", "/accounts/alice/statement", "", 200, `"event":"deposited","change":"100.00","balance":"100.00","currency":"USD"`},
		{"GET", "/accounts/alice/statement?to=2001-01-01", "", 200, `"lines":[]`},
		{"GET", "/accounts/alice/statement?from=noon", "", 400, "from"},
		{"GET", "/accounts/alice/statement?after=x", "", 400, "after"},
		{"GET", "/accounts/unknown/statement", "", 404, `"code":"bank/not_open"`},

		{"POST", "/accounts/bob/deposits", ``, 415, `"code":"bank/media_type"`},
		{"POST", "/accounts/bob/deposits", `{`, 400, `"code":"bank/bad_request"`},
		{"POST", "/accounts/bob/deposits", `null null`, 400, "more than one"},
		{"POST", "/accounts/bob/deposits", `{"amount": 1.5, "currency": "USD"}`, 400, "amount"},
		{"POST", "/accounts/bob/deposits", `{"amount": "1", "currency": "USD", "to": "bob"}`, 400, `unknown field \"to\"`},
		{"POST", "/accounts/bob/deposits", `{"amount": "` + strings.Repeat("1", maxBody) + `"}`, 413, `"code":"bank/too_large"`},
	} {
		status, answer := c.send(t, step.method, step.path, step.body)
		if status != step.status || !strings.Contains(answer, step.want) {
			t.Errorf("%s %s %.80s: %d %s; want %d %s", step.method, step.path, step.body, status, answer, step.status, step.want)
		}
	}
	settled(t, b, "alice")
	c.send(t, "GET", "/accounts/bob?in=USD", "")
	audited(t, b)
}

func TestStatementPages(t *testing.T) {
	t.Parallel()
	f := forgery{"alice": {Opened{cause(""), money.USD, "Alice"}}}
	for range 2 * page {
		f["alice"] = append(f["alice"], Deposited{cause(""), plain(usd("1"))})
	}
	c := newClient(t, f.write(t))
	var after, pages uint64
	for n := uint64(1); ; pages++ {
		status, answer := c.send(t, "GET", fmt.Sprintf("/accounts/alice/statement?after=%d", after), "")
		var body statementBody
		if err := json.Unmarshal([]byte(answer), &body); err != nil || status != 200 {
			t.Fatal(status, err)
		}
		for _, l := range body.Lines {
			if want := fmt.Sprintf("%d.00", n-1); l.Number != n || l.Balance != want {
				t.Fatalf("got line %+v, want number %d and balance %s", l, n, want)
			}
			n++
		}
		if after = body.Next; after == 0 {
			if n != 2*page+2 || pages != 2 {
				t.Errorf("got %d lines on %d pages, want %d on 3", n-1, pages+1, 2*page+1)
			}
			return
		}
	}
}

func TestAPIWithStrangeIDs(t *testing.T) {
	t.Parallel()
	c := newClient(t, newBank(t, testRates))
	if status, answer := c.send(t, "POST", "/accounts", `{"id": "a/b|c ü", "currency": "USD"}`); status != 200 {
		t.Errorf("POST: status %d, want 200; %s", status, answer)
	}
	if status, answer := c.send(t, "GET", "/accounts/a%2Fb%7Cc%20%C3%BC", ""); status != 200 || !strings.Contains(answer, `"id":"a/b|c ü"`) {
		t.Errorf("GET: status %d, want 200 and the same ID; %s", status, answer)
	}
}

func TestCrossSiteRequest(t *testing.T) {
	t.Parallel()
	b := newBank(t, testRates)
	c := newClient(t, b)
	open(t, b, "alice USD")
	status, _ := c.send(t, "POST", "/accounts/alice/deposits", `{"amount": "1", "currency": "USD"}`, "Sec-Fetch-Site", "cross-site")
	if status != http.StatusForbidden {
		t.Errorf("cross-site request: status %d, want 403", status)
	}
	if status, _ = c.send(t, "POST", "/accounts/alice/deposits", `{"amount": "1", "currency": "USD"}`, "Content-Type", "text/plain"); status != http.StatusUnsupportedMediaType {
		t.Errorf("request with another Content-Type: status %d, want 415", status)
	}
	balance(t, b, "alice", usd("0"))
}

// The OpenAPI file and the program have the same calls, and the file names the fields that the
// program reads.
func TestOpenAPIFileIsComplete(t *testing.T) {
	t.Parallel()
	b := newBank(t, testRates)
	open(t, b, "id USD")
	c := newClient(t, b)
	var n int
	for path, methods := range c.spec.Paths {
		for method, op := range methods {
			n++
			body := ""
			if method == "post" {
				body = "{}"
				fields := c.spec.Components.Schemas[strings.TrimPrefix(op.RequestBody.Content["application/json"].Schema.Ref, "#/components/schemas/")]
				for field := range fields.Properties {
					status, answer := c.send(t, "POST", strings.ReplaceAll(path, "{id}", "id"), fmt.Sprintf(`{%q: "x"}`, field))
					if strings.Contains(answer, "unknown field") {
						t.Errorf("%s: the program rejects the documented field %s: %d %s", op.OperationID, field, status, answer)
					}
				}
			}
			if status, _ := c.send(t, strings.ToUpper(method), strings.ReplaceAll(path, "{id}", "id"), body); status == http.StatusMethodNotAllowed {
				t.Errorf("%s %s is in the OpenAPI file, but the program does not allow the method", method, path)
			}
		}
	}
	if n != 7 {
		t.Errorf("the OpenAPI file has %d calls, want 7", n)
	}
}

func TestStatusOfErrors(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]int{
		ErrNotOpen: 404, ErrInsufficient: 409, fmt.Errorf("in words: %w", ErrNoRate): 409, eventsourcing.ErrArgument: 400, eventsourcing.ErrInvalid: 500,
		context.DeadlineExceeded: 504, eventsourcing.ErrOutcomeUnknown: 504, eventsourcing.ErrStashFull: 503, eventsourcing.ErrStopped: 503,
		errors.New("disk on fire"): 500, eventsourcing.ErrNotStored: 503,
	} {
		if got := statusOf(err); got != want {
			t.Errorf("%v: %d, want %d", err, got, want)
		}
	}
}

// The client gets the code of an internal error. The reason is in the log only.
func TestInternalError(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	a := &api{log: slog.New(slog.NewTextHandler(&log, nil))}
	for _, err := range []error{errors.New("dial 10.0.0.7: secret"), fmt.Errorf("%w: dial 10.0.0.7: secret", eventsourcing.ErrNotStored)} {
		log.Reset()
		w := httptest.NewRecorder()
		a.answer(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/accounts/alice", nil), nil, err)
		if w.Code < 500 || strings.Contains(w.Body.String(), "secret") || !strings.Contains(w.Body.String(), eventsourcing.StatusOf(err).Code) || !strings.Contains(log.String(), "secret") {
			t.Errorf("%v: %d %s, log %s; want the code, and the reason in the log only", err, w.Code, w.Body, log.String())
		}
	}
}

// A page of another site that resolves its name to the bank can't use the API.
func TestUnknownHost(t *testing.T) {
	t.Parallel()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		served <- serve(ctx, listener, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "done") }), "bank.example")
	}()
	for host, want := range map[string]int{
		"evil.example": 421, "evil.example:8080": 421, "127.0.0.1.evil.example": 421, "localhost.": 421, "x": 421,
		"127.0.0.1": 200, "127.0.0.1:8080": 200, "[::1]:8080": 200, "192.0.2.7": 200, "localhost:8080": 200, "LocalHost": 200, "Bank.example:80": 200,
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+listener.Addr().String(), nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		got, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = got.Body.Close()
		if got.StatusCode != want {
			t.Errorf("Host %s: status %d, want %d", host, got.StatusCode, want)
		}
	}
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// The bank warns if other machines can reach its API, and its console is read-only.
func TestServeInPublic(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	out, code := make(lineWriter, 100), make(chan int, 1)
	var errout strings.Builder
	go func() {
		code <- run(ctx, []string{"serve", "--journal", "inmem:", "--addr", "0.0.0.0:0"}, strings.NewReader(""), out, &errout)
	}()
	address, _, _ := strings.Cut(strings.TrimPrefix(<-out, "The bank is open at "), "\n")
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", browserAccept)
	page, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(page.Body)
	_ = page.Body.Close()
	if err != nil || !strings.Contains(string(text), "Console (read-only)</a>") {
		t.Errorf("the page at %s, %v, does not say that the console is read-only: %s", r.URL, err, text)
	}
	stop()
	if got := <-code; got != exitOK || !strings.HasPrefix(errout.String(), "bank: warning: other machines can reach ") {
		t.Errorf("serve at 0.0.0.0: exit code %d, standard error %q; want %d and a warning", got, errout.String(), exitOK)
	}
}

// A stopping server completes pending requests.
func TestServeDrains(t *testing.T) {
	t.Parallel()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	begun, finish := make(chan struct{}), make(chan struct{})
	served := make(chan error, 1)
	go func() {
		served <- serve(ctx, listener, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			close(begun)
			<-finish
			_, _ = io.WriteString(w, "done")
		}))
	}()
	answered := make(chan string, 1)
	go func() { answered <- get(t.Context(), "http://"+listener.Addr().String()) }()
	<-begun
	stop()
	for listens(t, listener.Addr().String()) {
		continue
	}
	close(finish)
	if got := <-answered; got != "done" {
		t.Errorf("the pending request got %q, want \"done\"", got)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// listens reports whether a server listens at an address.
func listens(t *testing.T, address string) bool {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
	if err != nil {
		return false
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	return true
}

// get returns the body of a response, or an error text.
func get(ctx context.Context, url string) string {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err.Error()
	}
	transport := &http.Transport{DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	answer, err := (&http.Client{Transport: transport, Timeout: 2 * time.Minute}).Do(r)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return err.Error()
	}
	return string(body)
}

// lineWriter sends each written text to its channel.
type lineWriter chan string

func (w lineWriter) Write(p []byte) (int, error) {
	w <- string(p)
	return len(p), nil
}

func TestServe(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	out, code := make(lineWriter, 100), make(chan int, 1)
	var errout strings.Builder
	go func() {
		code <- run(ctx, []string{"serve", "--journal", "inmem:", "--addr", "127.0.0.1:0"}, strings.NewReader(""), out, &errout)
	}()
	greeting := <-out
	url, _, _ := strings.Cut(strings.TrimPrefix(greeting, "The bank is open at "), "\n")
	if got := get(t.Context(), url+"/"); got != greeting || strings.Count(got, "curl") != 3 {
		t.Errorf("%s returns\n%s\nwant the printed greeting with 3 calls\n%s", url, got, greeting)
	}
	if got := get(t.Context(), url+"/openapi.json"); got != string(openAPI) {
		t.Errorf("GET /openapi.json returns %.100s, want the embedded file", got)
	}
	if got := get(t.Context(), url+"/console/"); !strings.Contains(got, "commands per second") {
		t.Errorf("GET /console/ returns %s, want the commands per second of the bank", got)
	}
	if got := get(t.Context(), url+"/metrics"); !strings.Contains(got, "\nrefold_journal_breaker_open{") {
		t.Errorf("GET /metrics returns\n%s\nwant refold_journal_breaker_open", got)
	}
	stop()
	if got := <-code; got != exitOK || <-out != "stopped\n" || errout.String() != "" {
		t.Errorf("serve: exit code %d, standard error %q; want %d, \"stopped\" and nothing", got, errout.String(), exitOK)
	}
}

func TestServeAddressInUse(t *testing.T) {
	t.Parallel()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	r := call(t.Context(), "", "serve", "--journal", "inmem:", "--addr", listener.Addr().String())
	if r.code != exitFailed || !strings.Contains(r.errout, "address already in use") {
		t.Errorf("serve at an address in use: %+v, want exit code %d and \"address already in use\"", r, exitFailed)
	}
}

func FuzzBodies(f *testing.F) {
	for _, body := range []string{
		`{"amount": "1", "currency": "USD"}`, `{"amount": "0.001", "currency": "TWD", "request_id": "r"}`, `{}`, `[]`, `null`, `{"amount":`,
		`{"to": "bob", "amount": "1", "currency": "USD"}`, `{"id": "x", "currency": "USD", "owner": "\u0000"}`, `{"id": "\ud800", "currency": "USD"}`,
	} {
		for path := range 5 {
			f.Add(path, body)
		}
	}
	paths := []string{"/accounts", "/accounts/alice/deposits", "/accounts/alice/withdrawals", "/accounts/alice/transfers", "/accounts/alice/close"}
	f.Fuzz(func(t *testing.T, path int, body string) {
		s, err := openStore(t.Context(), "inmem:", false)
		if err != nil {
			t.Fatal(err)
		}
		b := startBank(t, s, testRates)
		defer stopBank(t, b)
		do(t, b, "alice", Open{Currency: money.USD, Owner: "Alice"})
		status, answer := newClient(t, b).send(t, "POST", paths[uint(path)%uint(len(paths))], body)
		if status >= 500 {
			t.Fatalf("POST with body %q: status %d, %s; want a status below 500", body, status, answer)
		}
	})
}
