// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package console_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/refold-io/refold/console"
	"github.com/refold-io/refold/transport"
)

// hostile is a name that would run a script if a page did not escape it.
const hostile = `<script>alert("1")</script>'"&`

// nodes is a transport.AdminClient with fixed replies. It records the requests.
type nodes struct {
	mu      sync.Mutex
	replies map[string]string // by service, command and, if it differs between nodes, node
	asked   map[string]int    // by service, command and right
	acts    []string          // the requests that act, each with the name of its node
	block   chan struct{}     // if not nil, requests wait for it
	blocked string            // the service and command of the requests that wait, empty for all
}

const (
	twoMembers = `{"state":{"cluster":"bank","self":"a#1","leader":"a#1","strategy":"keep-majority","converged":true,"members":[
		{"node":"a#1","status":"up","version":"1.0.0","up_number":1,"seen":true},{"node":"b#2","status":"up","version":"1.0.0","up_number":2,"seen":true}]}}`
	twoRegions = `{"node":"a#1","regions":[{"type":"account","singleton":"coordinator of accounts","total":8,"shards":3,"entities":12,"coordinator_state":{"term":7,"phase":"active","placed":6}}]}`
	threeCells = `{"node":"a#1","shards":[{"shard":0,"entities":1},{"shard":1,"entities":10},{"shard":5,"entities":0}]}`
)

func newNodes() *nodes {
	return &nodes{asked: map[string]int{}, replies: map[string]string{
		"cluster state": twoMembers, "cluster leave": `{}`, "cluster down": `{}`, "sharding regions": twoRegions, "sharding shards": threeCells,
		"sharding drain": `{}`, "sharding entities": `{"entities":["42"]}`,
	}}
}

func (n *nodes) Ask(ctx context.Context, _ string, right transport.AdminRight, node string, request []byte) ([]byte, error) {
	var r struct{ Service, Command string }
	if err := json.Unmarshal(request, &r); err != nil {
		return nil, err
	}
	if r.Service == "" {
		r.Service = "cluster"
	}
	n.mu.Lock()
	n.asked[r.Service+" "+r.Command+" "+right.String()]++
	if right == transport.AdminAct {
		n.acts = append(n.acts, node+" "+string(request))
	}
	reply, ok := n.replies[r.Service+" "+r.Command+" "+node]
	if !ok {
		reply, ok = n.replies[r.Service+" "+r.Command]
	}
	block := n.block
	if n.blocked != "" && n.blocked != r.Service+" "+r.Command {
		block = nil
	}
	n.mu.Unlock()
	if block != nil {
		select {
		case <-block:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	if !ok {
		return []byte(`{"error":"unknown service","no_service":true}`), nil
	}
	return []byte(reply), nil
}

func (*nodes) Close() error { return nil }

func (n *nodes) set(key, reply string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.replies[key] = reply
}

func (n *nodes) count(key string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.asked[key]
}

// acted returns the requests that act.
func (n *nodes) acted() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.acts)
}

// total is the number of all requests.
func (n *nodes) total() (requests int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, times := range n.asked {
		requests += times
	}
	return requests
}

// log collects log lines.
type log struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *log) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// open returns a console. It is closed after the test.
func open(tb testing.TB, opts console.Options) *console.Console {
	tb.Helper()
	if opts.Admin == nil {
		opts.Admin = newNodes()
	}
	c, err := console.New(opts)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(c.Close)
	return c
}

// anyone admits all requests as the user ann.
func anyone(*http.Request, string) (string, error) { return "ann", nil }

// browser sends requests to a console like a browser that has one of its pages open.
type browser struct {
	tb      testing.TB
	console http.Handler
	cookies []*http.Cookie
	host    string
}

func newBrowser(tb testing.TB, c http.Handler) *browser {
	tb.Helper()
	return &browser{tb: tb, console: c, host: "127.0.0.1:8080"}
}

// answer is the response to a request.
type answer struct {
	status  int
	header  http.Header
	text    string
	cookies []*http.Cookie
}

// do sends a request. The options change the request before.
func (b *browser) do(method, path string, form url.Values, change ...func(r *http.Request)) answer {
	b.tb.Helper()
	r := httptest.NewRequestWithContext(b.tb.Context(), method, path, strings.NewReader(form.Encode()))
	r.Host, r.RemoteAddr = b.host, "127.0.0.1:50000"
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Origin", "http://"+b.host)
	}
	for _, c := range b.cookies {
		r.AddCookie(c)
	}
	for _, f := range change {
		f(r)
	}
	w := httptest.NewRecorder()
	b.console.ServeHTTP(w, r)
	response := w.Result()
	defer func() { _ = response.Body.Close() }()
	b.cookies = append(b.cookies, response.Cookies()...)
	return answer{response.StatusCode, response.Header, w.Body.String(), response.Cookies()}
}

func (b *browser) get(path string, change ...func(r *http.Request)) answer {
	b.tb.Helper()
	return b.do(http.MethodGet, path, nil, change...)
}

// page returns the text of a page and its status.
func (b *browser) page(path string, change ...func(r *http.Request)) (text string, status int) {
	b.tb.Helper()
	a := b.get(path, change...)
	return a.text, a.status
}

func (b *browser) post(path string, form url.Values, change ...func(r *http.Request)) (text string, status int) {
	b.tb.Helper()
	a := b.do(http.MethodPost, path, form, change...)
	return a.text, a.status
}

func header(key, value string) func(r *http.Request) {
	return func(r *http.Request) { r.Header.Set(key, value) }
}
