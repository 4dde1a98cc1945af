// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"fmt"
	"html"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/refold-io/refold/internal/testkit/effort"
	"github.com/refold-io/refold/plugins/inmem"
)

const browserAccept = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"

// browser sends the requests of a browser without JavaScript to the page of a bank.
type browser struct {
	*testing.T

	page    *webPage
	handler http.Handler
}

// browse opens the page of a bank, and closes it at the end of the test.
func browse(t *testing.T, b *bank) *browser {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	p := openPage(ctx, func() (*bank, string) { return b, "" }, slog.New(slog.DiscardHandler))
	t.Cleanup(func() { cancel(); p.wait() })
	return &browser{t, p, p.handler(newAPI(b, slog.New(slog.DiscardHandler)))}
}

func (b *browser) send(r *http.Request) *httptest.ResponseRecorder {
	b.Helper()
	w := httptest.NewRecorder()
	b.handler.ServeHTTP(w, r)
	return w
}

// get returns the page at an address.
func (b *browser) get(path string) string {
	b.Helper()
	r := httptest.NewRequestWithContext(b.Context(), http.MethodGet, path, http.NoBody)
	r.Header.Set("Accept", browserAccept)
	w := b.send(r)
	if w.Code != http.StatusOK {
		b.Fatalf("GET %s: status %d, want 200: %s", path, w.Code, w.Body)
	}
	return w.Body.String()
}

// post sends a form and returns the page with the outcome.
func (b *browser) post(path string, want int, fields ...string) string {
	b.Helper()
	form := url.Values{}
	for i := 0; i < len(fields); i += 2 {
		form.Set(fields[i], fields[i+1])
	}
	r := httptest.NewRequestWithContext(b.Context(), http.MethodPost, path, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	w := b.send(r)
	if w.Code != want {
		b.Fatalf("POST %s %v: status %d, want %d: %s", path, form, w.Code, want, w.Body)
	}
	return w.Body.String()
}

// shows fails the test unless the page contains all texts.
func (b *browser) shows(page string, texts ...string) {
	b.Helper()
	for _, text := range texts {
		if !strings.Contains(page, text) {
			b.Errorf("the page does not contain %q:\n%s", text, page)
		}
	}
}

// await loads the page until it contains a text.
func (b *browser) await(path, text string) string {
	b.Helper()
	for {
		changed, _ := b.page.ledger.change()
		page := b.get(path)
		if strings.Contains(page, text) {
			return page
		}
		select {
		case <-changed:
		case <-b.Context().Done():
			b.Fatalf("timed out: the page at %s does not contain %q:\n%s", path, text, page)
		}
	}
}

// sumsOf returns the sum of each currency, and fails the test unless it equals the cash.
func (b *browser) sumsOf(page string) map[string]string {
	b.Helper()
	all := map[string]string{}
	for _, m := range regexp.MustCompile(`data-currency="(\w+)" data-sum="([^"]+)" data-cash="([^"]+)" data-balanced="(\w+)"`).FindAllStringSubmatch(page, -1) {
		if all[m[1]] = m[2]; m[2] != m[3] || m[4] != "true" {
			b.Errorf("the sum of %s is %s, the cash %s, balanced %s; want equal amounts", m[1], m[2], m[3], m[4])
		}
	}
	if len(all) != 2 {
		b.Errorf("the page shows the sums %v, want those of two currencies", all)
	}
	return all
}

// Browsers receive the page, other clients the text with the calls.
func TestPageIsForBrowsers(t *testing.T) {
	t.Parallel()
	b := browse(t, newBank(t, testRates))
	for accept, want := range map[string]string{
		"":                            "text/plain",
		"*/*":                         "text/plain", // curl
		"application/json":            "text/plain",
		"text/*":                      "text/plain",
		"text/html;q=0, */*":          "text/plain",
		"text/html;q=x":               "text/plain",
		browserAccept:                 "text/html",
		"application/json, text/html": "text/html",
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
		r.Header.Set("Accept", accept)
		w := b.send(r)
		if kind := w.Header().Get("Content-Type"); w.Code != http.StatusOK || kind != want+"; charset=utf-8" || w.Header().Get("Vary") != "Accept" {
			t.Errorf("Accept %q: status %d, Content-Type %q, Vary %q; want 200, %s and Accept", accept, w.Code, kind, w.Header().Get("Vary"), want)
		}
		var text strings.Builder
		greet(&text, "http://example.com")
		if want == "text/plain" && w.Body.String() != text.String() {
			t.Errorf("Accept %q: got\n%s\nwant the text with the calls", accept, w.Body)
		}
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/accounts/alice", http.NoBody)
	r.Header.Set("Accept", browserAccept)
	if w := b.send(r); w.Code != http.StatusNotFound || w.Header().Get("Content-Type") != "application/json" {
		t.Errorf("the API responds %d %s to a browser, want 404 in JSON", w.Code, w.Header().Get("Content-Type"))
	}
}

// The policy allows the files of the page and nothing else, and the page needs nothing else.
func TestPagePolicy(t *testing.T) {
	t.Parallel()
	b := browse(t, newBank(t, testRates))
	b.post("/page/demo", http.StatusOK)
	page := b.post("/page/transfer", http.StatusOK, "account", "alice", "to", "bob", "amount", "1", "currency", "USD")
	if found := regexp.MustCompile(`(?i)<style|\sstyle=|\son[a-z]+=|javascript:|<script[^>]*>[^<]`).FindString(page); found != "" {
		t.Errorf("the page contains %q, which the policy forbids", found)
	}
	links := regexp.MustCompile(`(?:src|href)="(/page/[^"]+)"`).FindAllStringSubmatch(page, -1)
	if len(links) != 3 {
		t.Fatalf("the page links to the files %v, want an icon, a style sheet and a script", links)
	}
	for _, path := range append(links, []string{"", "/"}) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path[1], http.NoBody)
		r.Header.Set("Accept", browserAccept)
		w := b.send(r)
		policy := w.Header().Get("Content-Security-Policy")
		if w.Code != http.StatusOK || !strings.HasPrefix(policy, "default-src 'none'; script-src 'self'; style-src 'self';") || strings.Contains(policy, "unsafe") ||
			!strings.Contains(policy, "form-action 'self'; frame-ancestors 'none'") || w.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("GET %s: status %d, headers %v; want 200 and a strict policy", path[1], w.Code, w.Header())
		}
		if path[1] == "/" {
			continue
		}
		r.Header.Set("If-None-Match", w.Header().Get("ETag"))
		if w = b.send(r); w.Code != http.StatusNotModified {
			t.Errorf("GET %s with its ETag: status %d, want 304", path[1], w.Code)
		}
	}
	for _, path := range []string{"/page/index.html", "/page/nothing.js", "/page/..%2fpage.go"} {
		if w := b.send(httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody)); w.Code != http.StatusNotFound {
			t.Errorf("GET %s: status %d, want 404", path, w.Code)
		}
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/page/demo", http.NoBody)
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	if w := b.send(r); w.Code != http.StatusForbidden {
		t.Errorf("a form of another site: status %d, want 403", w.Code)
	}
}

// Text of customers stays text wherever it appears.
func TestPageEscapes(t *testing.T) {
	t.Parallel()
	b := browse(t, newBank(t, testRates))
	const evil = `<script>alert("x")</script>`
	b.post("/page/open", http.StatusOK, "account", evil, "owner", evil, "currency", "USD")
	b.post("/page/deposit", http.StatusOK, "account", evil, "amount", "5", "currency", "USD", "request", evil)
	b.post("/page/transfer", http.StatusOK, "account", evil, "to", evil+"2", "amount", "1", "currency", "USD")
	for _, page := range []string{
		b.post("/page/deposit", http.StatusOK, "account", evil, "amount", "5", "currency", "USD", "request", evil),
		b.post("/page/deposit", http.StatusBadRequest, "account", evil, "amount", evil, "currency", "USD", "request", evil),
		b.await("/?account="+url.QueryEscape(evil), "refunded"),
	} {
		if strings.Contains(page, "<script>") {
			t.Errorf("the page contains <script>:\n%s", page)
		}
		b.shows(page, html.EscapeString(evil))
	}
	b.post("/page/open", http.StatusBadRequest, "account", "a\xff", "currency", "USD")
}

// hidden returns the fields of a form that a browser sends without input of a user.
func hidden(t *testing.T, page, form string) (action string, fields []string) {
	t.Helper()
	m := regexp.MustCompile(`(?s)<form id="` + form + `"[^>]* action="([^"]+)">(.*?)</form>`).FindStringSubmatch(page)
	if m == nil {
		t.Fatalf("the page has no form %s:\n%s", form, page)
	}
	for _, input := range regexp.MustCompile(`<input type="hidden" name="([^"]+)" value="([^"]*)">`).FindAllStringSubmatch(m[2], -1) {
		fields = append(fields, input[1], html.UnescapeString(input[2]))
	}
	return m[1], fields
}

// A request counts once, however often the customer sends it.
func TestPageSendsAgain(t *testing.T) {
	t.Parallel()
	under := newBank(t, testRates)
	b := browse(t, under)
	b.post("/page/open", http.StatusOK, "account", "alice", "owner", "Alice", "currency", "USD", "request", "r0")
	page := b.post("/page/deposit", http.StatusOK, "account", "alice", "amount", "100", "currency", "USD", "request", "r1")
	b.shows(page, `data-request="r1" data-sent="1" data-stored="1" data-code=""`, `data-event="alice/2" data-name="deposited"`, "Balance <b>100.00 USD</b>")
	b.post("/page/withdraw", http.StatusOK, "account", "alice", "amount", "30", "currency", "USD", "request", "r2")
	for sent := 2; sent <= 4; sent++ {
		action, fields := hidden(t, page, "again-form")
		page = b.post(action, http.StatusOK, fields...)
		b.shows(page, fmt.Sprintf(`data-request="r1" data-sent="%d" data-stored="1" data-code=""`, sent), "executed before", "Balance <b>100.00 USD</b>",
			`data-account="alice" data-balance="70.00"`)
	}
	page = b.post("/page/deposit", http.StatusConflict, "account", "alice", "amount", "101", "currency", "USD", "request", "r1")
	b.shows(page, `data-code="bank/request_reused"`)
	if got := names(t, under, "alice"); got != "Opened Deposited Withdrawn" {
		t.Errorf("alice has the events %s, want Opened Deposited Withdrawn", got)
	}
	// Without an ID in the form, the page assigns one.
	page = b.post("/page/deposit", http.StatusOK, "account", "alice", "amount", "1", "currency", "USD")
	b.shows(page, `data-request="page-`, `data-stored="1"`)
	ids := regexp.MustCompile(`name="request" value="(page-[a-z0-9]+)"`).FindAllStringSubmatch(b.get("/"), -1)
	unique := map[string]bool{}
	for _, m := range ids {
		unique[m[1]] = true
	}
	if len(ids) != 4 || len(unique) != 4 {
		t.Errorf("the forms have the request IDs %v, want 4 different ones", ids)
	}
}

// Each form executes its command, and the page shows the result: NTD is accepted, a transfer
// completes, and one to an unknown account is refunded.
func TestPageCommands(t *testing.T) {
	t.Parallel()
	b := browse(t, newBank(t, testRates))
	b.shows(b.get("/"), "no accounts yet", `id="demo-submit"`, "No events yet")
	b.post("/page/open", http.StatusOK, "account", "alice", "owner", "Alice Chen", "currency", "USD")
	b.post("/page/open", http.StatusOK, "account", "bob", "owner", "Bob Lin", "currency", "NTD")
	b.shows(b.post("/page/deposit", http.StatusOK, "account", "bob", "amount", "100", "currency", "NTD"), "Balance <b>100.00 TWD</b>")
	b.shows(b.post("/page/deposit", http.StatusOK, "account", "alice", "amount", "50", "currency", "USD"), "Balance <b>50.00 USD</b>")
	b.shows(b.post("/page/withdraw", http.StatusOK, "account", "alice", "amount", "10", "currency", "USD"), "Balance <b>40.00 USD</b>")
	page := b.post("/page/transfer", http.StatusOK, "account", "alice", "to", "bob", "amount", "10", "currency", "USD")
	b.shows(page, "Balance <b>30.00 USD</b>", `data-name="transfer_started"`)
	page = b.await("/?account=bob", `data-transfer="alice/1" data-state="completed"`)
	b.shows(page, `data-account="alice" data-balance="30.00"`, `data-account="bob" data-balance="421.50"`, "arrived as 321.50 TWD", "Bob Lin")
	b.post("/page/transfer", http.StatusOK, "account", "alice", "to", "nobody", "amount", "5", "currency", "USD")
	page = b.await("/?account=alice", `data-transfer="alice/2" data-state="refunded"`)
	b.shows(page, `class="refused"`, "bank/not_open", `data-account="alice" data-balance="30.00"`)
	if got := b.sumsOf(page); !maps.Equal(got, map[string]string{"USD": "40.00", "TWD": "100.00"}) {
		t.Errorf("the sums are %v, want 40.00 USD and 100.00 TWD", got)
	}
	b.shows(b.post("/page/withdraw", http.StatusConflict, "account", "alice", "amount", "31", "currency", "USD"), `data-code="bank/insufficient_funds"`, "stores nothing")
	b.shows(b.post("/page/withdraw", http.StatusNotFound, "account", "carol", "amount", "1", "currency", "USD"), `data-code="bank/not_open"`)
	b.shows(b.post("/page/deposit", http.StatusConflict, "account", "alice", "amount", "1", "currency", "EUR"), `data-code="bank/unknown_currency"`)
	b.shows(b.post("/page/deposit", http.StatusBadRequest, "account", " ", "amount", "1", "currency", "USD"), "account: missing")
	b.post("/page/deposit", http.StatusBadRequest, "account", strings.Repeat("x", maxBody), "amount", "1", "currency", "USD")
	b.post("/page/crash", http.StatusNotFound, "branch", "branch-1") // without branches
	b.post("/page/withdraw", http.StatusOK, "account", "alice", "amount", "30", "currency", "USD")
	action, fields := hidden(t, b.get("/?account=alice"), "close-form")
	b.shows(b.post(action, http.StatusOK, fields...), `data-name="closed"`)
	b.shows(b.get("/?account=nobody"), "the account does not exist")
}

// The page shows an account as of any event, and the balance without an event.
func TestPageShowsThePast(t *testing.T) {
	t.Parallel()
	b := browse(t, newBank(t, testRates))
	b.post("/page/open", http.StatusOK, "account", "alice", "owner", "Alice", "currency", "USD")
	for range 15 {
		b.post("/page/deposit", http.StatusOK, "account", "alice", "amount", "10", "currency", "USD")
	}
	for path, want := range map[string]string{
		"/?account=alice":                `data-at="16" data-last="16" data-balance="150.00"`,
		"/?account=alice&at=99":          `data-at="16" data-last="16" data-balance="150.00"`,
		"/?account=alice&at=1":           `data-at="1" data-last="16" data-balance="0.00"`,
		"/?account=alice&at=4":           `data-at="4" data-last="16" data-balance="30.00"`,
		"/?account=alice&without=3":      `data-at="16" data-last="16" data-balance="140.00"`,
		"/?account=alice&at=4&without=3": `data-at="4" data-last="16" data-balance="20.00"`,
	} {
		page := b.get(path)
		b.shows(page, want, `data-url="`)
		if path == "/?account=alice&at=4" {
			b.shows(page, `data-url="/?account=alice&amp;at=4"`, `<tr data-event="4">`, ">past<", "back to the present")
			if strings.Contains(page, `<tr data-event="5">`) {
				t.Error("the statement as of event 4 contains event 5")
			}
		}
	}
	b.shows(b.get("/?account=alice"), `<tr data-event="16">`, "6 earlier events")
}

// The statement has a running balance, also as of an earlier event.
func TestPageStatement(t *testing.T) {
	t.Parallel()
	b := browse(t, newBank(t, testRates))
	b.post("/page/open", http.StatusOK, "account", "alice", "owner", "Alice", "currency", "USD")
	b.post("/page/deposit", http.StatusOK, "account", "alice", "amount", "100", "currency", "USD")
	b.post("/page/withdraw", http.StatusOK, "account", "alice", "amount", "30", "currency", "USD")
	b.post("/page/transfer", http.StatusOK, "account", "alice", "to", "nobody", "amount", "20", "currency", "USD")
	b.await("/?account=alice", `data-transfer="alice/1" data-state="refunded"`)
	b.post("/page/deposit", http.StatusOK, "account", "alice", "amount", "1234.50", "currency", "USD")
	row := regexp.MustCompile(`<tr data-event="(\d+)"[^>]*>.*<td class="number (plus|minus)">([^<]*)</td><td class="number">([^<]*)</td>`)
	all := []string{"1 plus  0.00", "2 plus +100.00 100.00", "3 minus -30.00 70.00", "4 minus -20.00 50.00", "5 plus +20.00 70.00", "6 plus +1,234.50 1,304.50"}
	for path, events := range map[string]int{"/?account=alice": 6, "/?account=alice&at=4": 4, "/?account=alice&at=1": 1, "/?account=alice&at=5&without=3": 5} {
		page := b.get(path)
		var rows []string
		for _, m := range row.FindAllStringSubmatch(page, -1) {
			rows = append(rows, html.UnescapeString(strings.Join(m[1:], " ")))
		}
		want := slices.Clone(all[:events])
		slices.Reverse(want) // the latest event comes first
		if !slices.Equal(rows, want) {
			t.Errorf("the statement at %s has the rows %q, want %q", path, rows, want)
		}
		b.shows(page, fmt.Sprintf(`As of event <output id="asof-number">#%d</output> of 6`, events))
	}
}

// The button runs the audit of the command line, one at a time.
func TestPageAudit(t *testing.T) {
	t.Parallel()
	under := newBank(t, testRates)
	b := browse(t, under)
	b.post("/page/demo", http.StatusOK)
	b.post("/page/demo", http.StatusOK) // counts once
	b.post("/page/transfer", http.StatusOK, "account", "alice", "to", "bob", "amount", "10", "currency", "USD")
	b.await("/", `data-transfer="alice/1" data-state="completed"`)
	page := b.post("/page/audit", http.StatusOK, "view", "bob")
	var report strings.Builder
	audited(t, under).print(&report)
	b.shows(page, html.EscapeString(report.String()), ">OK<", `data-url="/?account=bob"`)
	if got := b.sumsOf(page); !maps.Equal(got, map[string]string{"USD": "1,750.00", "TWD": "45,000.00"}) {
		t.Errorf("the sums are %v, want 1,750.00 USD and 45,000.00 TWD", got)
	}
	b.page.busy.Lock()
	b.shows(b.post("/page/audit", http.StatusConflict), "bank/audit_runs")
	b.page.busy.Unlock()
	// The sums of the page and of the audit have the same meaning.
	b.page.ledger.mu.Lock()
	defer b.page.ledger.mu.Unlock()
	for currency, want := range audited(t, under).totals {
		got := b.page.ledger.sums.total(currency)
		if got.accounts.Cmp(&want.accounts) != 0 || got.inFlight.Cmp(&want.inFlight) != 0 || got.desk.Cmp(&want.desk) != 0 ||
			got.deposits.Cmp(&want.deposits) != 0 || got.withdrawals.Cmp(&want.withdrawals) != 0 {
			t.Errorf("%s: the page has the sums %+v, the audit %+v", currency, got, want)
		}
	}
}

// The audit on the page reports a falsified history.
func TestPageAuditFindsDifferences(t *testing.T) {
	t.Parallel()
	under := newBank(t, testRates)
	under.journal = torn{Journal: under.journal, id: "account|bob", lost: 1}
	b := browse(t, under)
	b.post("/page/demo", http.StatusOK)
	b.await("/", `data-account="alice" data-balance="1,000.00"`)
	b.shows(b.post("/page/audit", http.StatusOK), "VIOLATION sequence", "has found differences")
}

// The page shows the age of the rates, and the reason why a rate cannot be used.
func TestPageRates(t *testing.T) {
	t.Parallel()
	b := browse(t, newBank(t, oneWay))
	days := int(time.Since(time.Date(2026, 7, 1, 0, 0, 0, 0, time.UTC)).Hours() / 24)
	b.shows(b.get("/"), `data-pair="USD/TWD">1 USD = <b>32.15</b> TWD`, fmt.Sprintf("%d days old", days), "as of 2026-07-01T00:00:00Z",
		"no rate</span> no rate for TWD/USD")
	for d, want := range map[time.Duration]string{
		-time.Hour: "0 seconds", 0: "0 seconds", time.Second: "1 second", 59 * time.Second: "59 seconds", 90 * time.Second: "1 minute",
		3 * time.Hour: "3 hours", 24 * time.Hour: "1 day", 150 * 24 * time.Hour: "150 days",
	} {
		if got := age(d); got != want {
			t.Errorf("age(%v) = %q, want %q", d, got, want)
		}
	}
}

// The page links to the console, which shows the accounts of the program.
func TestPageMountsTheConsole(t *testing.T) {
	t.Parallel()
	under := newBank(t, testRates)
	b := browse(t, under)
	if strings.Contains(b.get("/"), "console-link") {
		t.Error("the page without a console links to it")
	}
	agent, err := under.agent(nil, nil, b.page.logger)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = agent.Close() }()
	if err = b.page.mount(agent, &net.TCPAddr{IP: net.IPv6loopback}, nil); err != nil {
		t.Fatal(err)
	}
	b.handler = b.page.handler(newAPI(under, b.page.logger))
	b.post("/page/open", http.StatusOK, "account", "alice", "owner", "<script>", "currency", "USD")
	b.shows(b.get("/"), `id="console-link" class="button quiet" href="/console/"`)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/console/entities/account%7Calice", http.NoBody)
	w := b.send(r)
	if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "alice") || strings.Contains(w.Body.String(), "<script>") {
		t.Errorf("GET %s: status %d, want 200 and alice: %s", r.URL, w.Code, w.Body)
	}
}

// The console of a bank that other machines can reach permits no actions, and the page says so.
func TestConsoleActsOnTheMachineItself(t *testing.T) {
	t.Parallel()
	for ip, permitted := range map[string]bool{"127.0.0.1": true, "127.8.0.1": true, "::1": true, "0.0.0.0": false, "::": false, "192.0.2.7": false} {
		under := newBank(t, testRates)
		b := browse(t, under)
		agent, err := under.agent(nil, nil, b.page.logger)
		if err != nil {
			t.Fatal(err)
		}
		if err = b.page.mount(agent, &net.TCPAddr{IP: net.ParseIP(ip)}, nil); err != nil {
			t.Fatal(err)
		}
		b.handler = b.page.handler(newAPI(under, b.page.logger))
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/console/act?action=journal.verify", http.NoBody)
		r.Header.Set("Origin", "http://localhost")
		status := http.StatusForbidden
		if permitted {
			status = http.StatusOK
		}
		if w := b.send(r); w.Code != status {
			t.Errorf("an action at %s: status %d, want %d: %s", ip, w.Code, status, w.Body)
		}
		r = httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/console/journal", http.NoBody)
		if w := b.send(r); w.Code != http.StatusOK || strings.Contains(w.Body.String(), "action=journal.") != permitted {
			t.Errorf("the journal at %s: status %d, want 200 and the action only if it is permitted (%v): %s", ip, w.Code, permitted, w.Body)
		}
		if got := strings.Contains(b.get("/"), "Console (read-only)</a>"); got == permitted {
			t.Errorf("the page at %s says that the console is read-only: %v, want %v", ip, got, !permitted)
		}
		if err = agent.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A stream sends an event after each change, and ends with the server.
func TestPageStream(t *testing.T) {
	t.Parallel()
	under := newBank(t, testRates)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	p := openPage(ctx, func() (*bank, string) { return under, "" }, slog.New(slog.DiscardHandler))
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- serve(ctx, listener, p.handler(newAPI(under, p.logger))) }()
	b := &browser{t, p, p.handler(http.NotFoundHandler())}
	b.get("/")
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+listener.Addr().String()+"/page/stream", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	carrier := &http.Transport{}
	defer carrier.CloseIdleConnections()
	response, err := carrier.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	lines := bufio.NewScanner(response.Body)
	next := func(want string) {
		t.Helper()
		for lines.Scan() {
			if lines.Text() == want {
				return
			}
		}
		t.Fatalf("the stream has ended before %q: %v", want, lines.Err())
	}
	next("event: change")
	next("data: 0")
	open(t, under, "alice USD")
	next("data: 1")
	open(t, under, "bob USD")
	next("data: 2")
	began := time.Now()
	stop()
	for lines.Scan() {
		if lines.Text() == "data: 3" {
			t.Error("the stream continues after the end of the server")
		}
	}
	if took := time.Since(began); effort.Soak() && took > time.Second { // no other work runs on the machine during a soak
		t.Errorf("the stream ended %v after the server, want at most 1 s", took)
	}
	if err = lines.Err(); err != nil {
		t.Errorf("the client read an incomplete response: %v", err)
	}
	if err = <-served; err != nil { // the server does not wait in vain for the stream
		t.Errorf("the server ended with %v", err)
	}
	p.wait()
}

// While a branch crashes and starts again, money moves between the accounts, and the sum of all
// balances stays equal at each moment.
func TestPageCrashesBranches(t *testing.T) {
	t.Parallel()
	onBranches(t, func(c *chain) {
		ctx, cancel := context.WithCancel(c.Context())
		s := &branches{app: &app{ctx: ctx, stdout: c.log}, whole: true, stopPage: func() {}, prepared: make(chan struct{})}
		s.reopen = func(name string, _ []string) (*branch, error) { return c.start(name, c.state), nil }
		for _, name := range slices.Sorted(maps.Keys(c.branches)) {
			b := c.branches[name]
			s.all = append(s.all, b)
			s.servers = append(s.servers, &branchServer{address: "127.0.0.1:0", api: s.handler(b), stop: func() {}})
		}
		p := openPage(ctx, s.running, slog.New(slog.NewTextHandler(c.log, nil)))
		p.branches = s
		b := &browser{c.T, p, p.handler(s.front(0))}

		b.post("/page/demo", http.StatusOK)
		want := map[string]string{"USD": "1,750.00", "TWD": "45,000.00"}
		until := func(texts ...string) {
			c.Helper()
			for range 600 {
				page := b.get("/")
				if got := b.sumsOf(page); !maps.Equal(got, want) {
					c.Fatalf("the sums are %v, want %v", got, want)
				}
				if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(page, text) }) {
					return
				}
				sleep(c.Context(), 200*time.Millisecond) // advances the clock of the synctest bubble
			}
			c.Fatalf("timed out: the page does not contain %q:\n%s", texts, b.get("/"))
		}
		until(`data-branch="branch-1" data-state="running"`, `data-branch="branch-2" data-state="running"`)
		c.network.Inject(inmem.Fault{Delay: 20 * time.Millisecond}) // keeps transfers in flight
		b.post("/page/traffic", http.StatusOK)
		b.shows(b.post("/page/traffic", http.StatusConflict), "bank/traffic_runs")
		for _, name := range []string{"branch-2", "branch-1"} { // branch-1 runs the coordinator
			b.shows(b.post("/page/crash", http.StatusOK, "branch", name), name+" stops without leaving")
			b.post("/page/crash", http.StatusConflict, "branch", name)
			until(`data-branch="`+name+`" data-state="crashed"`, "removed by the others")
			c.until("branch-3", "alice", `"status":"open"`)
			b.shows(b.post("/page/restart", http.StatusOK, "branch", name), name+" joins the others")
			b.post("/page/restart", http.StatusConflict, "branch", name)
			until(`data-branch="` + name + `" data-state="running"`)
		}
		b.post("/page/crash", http.StatusConflict, "branch", "branch-9")
		until(`data-running="false"`, fmt.Sprintf(`data-done="%d"`, len(demoAccounts)*trafficEach))
		c.awaitNothingInFlight("branch-3")
		until(`data-state="completed"`)
		if r := c.audit("branch-3"); r.completed != len(demoAccounts)*trafficEach {
			c.Errorf("the audit found %d completed transfers, want %d", r.completed, len(demoAccounts)*trafficEach)
		}

		for _, name := range []string{"branch-1", "branch-2"} {
			b.post("/page/crash", http.StatusOK, "branch", name)
			until(`data-branch="` + name + `" data-state="crashed"`)
		}
		b.shows(b.post("/page/crash", http.StatusConflict, "branch", "branch-3"), errLastBranch.Error())
		r := httptest.NewRequestWithContext(c.Context(), http.MethodGet, "/accounts/alice", http.NoBody)
		if w := b.send(r); w.Code != http.StatusServiceUnavailable {
			c.Errorf("the API of a crashed branch responds %d, want 503", w.Code)
		}
		cancel()
		close(s.prepared)
		p.wait()
		s.work.Wait()
	})
}

// The console colours the shards of a cluster by load, which the branches measure.
func TestConsoleShowsLoadOfShards(t *testing.T) {
	t.Parallel()
	onBranches(t, func(c *chain) {
		ctx, cancel := context.WithCancel(c.Context())
		one := c.branches["branch-1"]
		p := openPage(ctx, func() (*bank, string) { return one.bank, "branch-1" }, slog.New(slog.NewTextHandler(c.log, nil)))
		defer func() { cancel(); p.wait() }()
		if err := p.mount(c.network.Operator("console"), &net.TCPAddr{IP: net.IPv6loopback}, nil); err != nil {
			c.Fatal(err)
		}
		b := &browser{c.T, p, p.handler(one.api())}
		b.post("/page/open", http.StatusOK, "account", "alice", "owner", "Alice", "currency", "USD")
		shard, err := one.region.ShardOf("alice")
		if err != nil {
			c.Fatal(err)
		}
		warm := regexp.MustCompile(fmt.Sprintf(`class="cell h[1-6]" id="shard-%d" data-shard="%[1]d" data-node="%s"[^>]* commands per second"`, shard, c.home("branch-1", "alice")))
		var page string
		for range 100 {
			b.post("/page/deposit", http.StatusOK, "account", "alice", "amount", "1", "currency", "USD")
			if page = b.get("http://localhost/console/shards?by=load"); warm.MatchString(page) && !strings.Contains(page, `id="unmeasured"`) {
				return
			}
			sleep(c.Context(), time.Second) // advances the clock of the synctest bubble
		}
		c.Errorf("the page does not show the load of shard %d: %s", shard, page)
	})
}
