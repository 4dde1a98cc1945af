// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package console_test

import (
	"crypto/tls"
	"errors"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/crypto/bcrypt"

	"github.com/refold-io/refold/console"
)

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	_, err := console.New(console.Options{
		Prefix: "console", Hosts: []string{"example.com:80"}, Interval: 1, PasswordFile: filepath.Join(t.TempDir(), "missing"), Authorize: anyone,
	})
	if !errors.Is(err, console.ErrInvalid) {
		t.Fatalf("New returned %v, want ErrInvalid", err)
	}
	for _, field := range []string{"Admin", "Prefix", "Hosts", "Interval", "PasswordFile"} {
		if !strings.Contains(err.Error(), "Options."+field) {
			t.Errorf("the error does not name the field %s: %v", field, err)
		}
	}
}

// tokenOf returns the path and the query of a login URL.
func tokenOf(tb testing.TB, c *console.Console) string {
	tb.Helper()
	u, err := url.Parse(c.LoginURL("http://127.0.0.1:8080"))
	if err != nil {
		tb.Fatal(err)
	}
	return u.RequestURI()
}

func TestTokenAdmitsOneBrowser(t *testing.T) {
	t.Parallel()
	c := open(t, console.Options{Prefix: "/console/", AllowActions: true})
	b := newBrowser(t, c)
	if text, status := b.page("/console/"); status != http.StatusUnauthorized || strings.Contains(text, "Nodes") {
		t.Errorf("a browser without a session got the status %d and %q", status, text)
	}
	if _, status := b.page("/console/login?token=" + strings.Repeat("0", 64)); status != http.StatusForbidden {
		t.Errorf("a wrong token got the status %d, want 403", status)
	}
	token := tokenOf(t, c)
	r := b.get(token)
	if r.status != http.StatusSeeOther || r.header.Get("Location") != "/console/" {
		t.Fatalf("the token got the status %d and the location %q", r.status, r.header.Get("Location"))
	}
	cookie := r.cookies[0]
	if !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode || cookie.Path != "/console/" || cookie.Secure {
		t.Errorf("the cookie is %+v, want HttpOnly, SameSite=Strict and the path of the console", cookie)
	}
	if text, status := b.page("/console/"); status != http.StatusOK || !strings.Contains(text, `id="user"`) {
		t.Errorf("the browser with a session got the status %d", status)
	}
	if _, status := newBrowser(t, c).page(token); status != http.StatusForbidden {
		t.Errorf("the second use of the token got the status %d, want 403", status)
	}
	if _, status := newBrowser(t, c).page("/console/", func(r *http.Request) { r.AddCookie(&http.Cookie{Name: cookie.Name, Value: "00"}) }); status != http.StatusUnauthorized {
		t.Errorf("a wrong cookie got the status %d, want 401", status)
	}
	b.post("/console/logout", nil)
	again := newBrowser(t, c)
	again.cookies = []*http.Cookie{cookie}
	if _, status := again.page("/console/"); status != http.StatusUnauthorized {
		t.Errorf("a session that has ended got the status %d, want 401", status)
	}
}

// A secret is accepted from the machine itself or over TLS.
func TestSecretsAreNotReadOnTheNetwork(t *testing.T) {
	t.Parallel()
	c := open(t, console.Options{})
	far := func(r *http.Request) { r.RemoteAddr = "192.0.2.7:1234" }
	if _, status := newBrowser(t, c).page(tokenOf(t, c), far); status != http.StatusForbidden {
		t.Errorf("a token over plain HTTP from another machine got the status %d, want 403", status)
	}
	r := newBrowser(t, c).get(tokenOf(t, c), far, func(r *http.Request) { r.TLS = &tls.ConnectionState{} })
	if r.status != http.StatusSeeOther || !r.cookies[0].Secure {
		t.Errorf("a token over TLS got the status %d, want a session with a Secure cookie", r.status)
	}
}

func passwords(tb testing.TB) string {
	tb.Helper()
	hash, err := bcrypt.GenerateFromPassword([]byte("open sesame"), bcrypt.MinCost)
	if err != nil {
		tb.Fatal(err)
	}
	path := filepath.Join(tb.TempDir(), "passwords")
	if err := os.WriteFile(path, []byte("# users\nann:"+string(hash)+":act\nbob:"+string(hash)+"\n"), 0o600); err != nil {
		tb.Fatal(err)
	}
	return path
}

func TestPasswords(t *testing.T) {
	t.Parallel()
	var lines log
	c := open(t, console.Options{PasswordFile: passwords(t), AllowActions: true, Logger: lines.logger()})
	drain := url.Values{"action": {"sharding.drain"}, "node": {"a"}, "type": {"account"}}
	for _, wrong := range []url.Values{{"user": {"ann"}, "password": {"open"}}, {"user": {"eve"}, "password": {"open sesame"}}, {}} {
		b := newBrowser(t, c)
		if text, status := b.post("/login", wrong); status != http.StatusForbidden || !strings.Contains(text, "wrong") || len(b.cookies) > 0 {
			t.Errorf("the login %v got the status %d, want 403", wrong, status)
		}
	}
	if !strings.Contains(lines.String(), "login failed") || !strings.Contains(lines.String(), "user=eve") {
		t.Errorf("the log does not contain the failed logins: %s", lines.String())
	}
	if _, status := newBrowser(t, c).page(tokenOf(t, c)); status == http.StatusSeeOther {
		t.Error("a console with passwords accepted a token")
	}
	for user, want := range map[string]int{"ann": http.StatusOK, "bob": http.StatusForbidden} {
		b := newBrowser(t, c)
		if _, status := b.post("/login", url.Values{"user": {user}, "password": {"open sesame"}, "next": {"//evil.example/"}}); status != http.StatusSeeOther {
			t.Fatalf("the login of %s got the status %d, want 303", user, status)
		}
		text, status := b.page("/shards")
		if offered := strings.Contains(text, "Drain…"); status != http.StatusOK || offered != (user == "ann") {
			t.Errorf("%s got the page with the status %d, actions offered: %v", user, status, offered)
		}
		if _, status := b.page("/confirm?" + drain.Encode()); status != want {
			t.Errorf("%s got the confirmation with the status %d, want %d", user, status, want)
		}
		if _, status := b.post("/act", drain); status != want {
			t.Errorf("%s acted with the status %d, want %d", user, status, want)
		}
	}
	attempts := 0
	for b := newBrowser(t, c); attempts < 20; attempts++ {
		if _, status := b.post("/login", url.Values{"user": {"ann"}, "password": {"wrong"}}); status == http.StatusTooManyRequests {
			break
		}
	}
	if attempts > 10 {
		t.Errorf("the console checked %d wrong passwords of one address, want at most 10 in a minute", attempts)
	}
}

func TestLoginStaysOnTheConsole(t *testing.T) {
	t.Parallel()
	c := open(t, console.Options{PasswordFile: passwords(t), Prefix: "/console/"})
	for next, want := range map[string]string{
		"//evil.example/console/": "/console/", "https://evil.example/console/": "/console/", "/other": "/console/", "/\\evil.example": "/console/",
		"/console/shards?type=a": "/console/shards?type=a",
	} {
		r := newBrowser(t, c).do(http.MethodPost, "/console/login", url.Values{"user": {"ann"}, "password": {"open sesame"}, "next": {next}})
		if got := r.header.Get("Location"); got != want {
			t.Errorf("a login with next=%q leads to %q, want %q", next, got, want)
		}
	}
}

// A foreign page reaches the console under its own host name, or sends requests from its own origin.
func TestForeignPagesAreRefused(t *testing.T) {
	t.Parallel()
	admin := newNodes()
	c := open(t, console.Options{Admin: admin, Authorize: anyone, AllowActions: true, Hosts: []string{"console.example"}})
	b := newBrowser(t, c)
	host := func(h string) func(r *http.Request) {
		return func(r *http.Request) {
			if r.Host = h; r.Method == http.MethodPost {
				r.Header.Set("Origin", "http://"+h)
			}
		}
	}
	for name, change := range map[string][]func(r *http.Request){
		"host":            {host("evil.example:8080")},
		"similar host":    {host("127.0.0.1.evil.example")},
		"origin":          {header("Origin", "http://evil.example")},
		"origin null":     {header("Origin", "null")},
		"origin port":     {header("Origin", "http://127.0.0.1:9999")},
		"no origin":       {func(r *http.Request) { r.Header.Del("Origin") }},
		"cross site":      {header("Sec-Fetch-Site", "cross-site")},
		"same site":       {header("Sec-Fetch-Site", "same-site")},
		"cross site form": {header("Sec-Fetch-Site", "cross-site"), header("Sec-Fetch-Mode", "navigate")},
	} {
		if text, status := b.post("/act", url.Values{"action": {"cluster.down"}, "node": {"a"}}, change...); status != http.StatusForbidden {
			t.Errorf("%s: an action got the status %d, want 403: %s", name, status, text)
		}
		if name == "no origin" || name == "cross site form" { // these are harmless without a change
			continue
		}
		if _, status := b.page("/stream?page=nodes", change...); status != http.StatusForbidden {
			t.Errorf("%s: a stream got the status %d, want 403", name, status)
		}
	}
	if n := admin.count("cluster down act"); n != 0 {
		t.Errorf("the nodes received %d actions of foreign pages", n)
	}
	for _, h := range []string{"127.0.0.1", "localhost:1", "[::1]:8080", "console.example", "CONSOLE.example:443"} {
		if _, status := b.page("/", host(h)); status != http.StatusOK {
			t.Errorf("the host %s got the status %d, want 200", h, status)
		}
	}
	if _, status := b.post("/act", url.Values{"action": {"cluster.leave"}, "node": {"b"}}, func(r *http.Request) { r.Header.Del("Origin") }, header("Sec-Fetch-Site", "same-origin")); status != http.StatusOK {
		t.Errorf("an action from the same origin got the status %d, want 200", status)
	}
}

// Authorize decides about each request. Without AllowActions nothing acts.
func TestAuthorizeDecides(t *testing.T) {
	t.Parallel()
	admin, asked := newNodes(), []string{}
	opts := console.Options{Admin: admin, AllowActions: true, Authorize: func(_ *http.Request, action string) (string, error) {
		if asked = append(asked, action); action == "cluster.down" {
			return "", errors.New("ask the owner of the cluster first")
		}
		return "ann", nil
	}}
	b := newBrowser(t, open(t, opts))
	if _, status := b.post("/act", url.Values{"action": {"cluster.leave"}, "node": {"b"}}); status != http.StatusOK {
		t.Errorf("a permitted action got the status %d, want 200", status)
	}
	if text, status := b.post("/act", url.Values{"action": {"cluster.down"}, "node": {"b"}}); status != http.StatusForbidden || !strings.Contains(text, "ask the owner") {
		t.Errorf("a refused action got the status %d, want 403 with the reason", status)
	}
	if admin.count("cluster leave act") != 1 || admin.count("cluster down act") != 0 {
		t.Errorf("the nodes received the requests %v", admin.asked)
	}
	if asked[0] != "cluster.leave" || asked[len(asked)-1] != "cluster.down" {
		t.Errorf("Authorize was called for %q", asked)
	}
	opts.AllowActions = false
	b = newBrowser(t, open(t, opts))
	if _, status := b.post("/act", url.Values{"action": {"cluster.leave"}, "node": {"b"}}); status != http.StatusForbidden {
		t.Errorf("an action without AllowActions got the status %d, want 403", status)
	}
	if text, _ := b.page("/nodes"); strings.Contains(text, "Leave…") {
		t.Error("a console without AllowActions offers actions")
	}
}

// An action names its target, asks first, and is logged with the user.
func TestActionsAreConfirmedAndLogged(t *testing.T) {
	t.Parallel()
	admin := newNodes()
	var lines log
	b := newBrowser(t, open(t, console.Options{Admin: admin, Authorize: anyone, AllowActions: true, Logger: lines.logger()}))
	text, status := b.page("/confirm?action=cluster.down&node=b%232")
	if status != http.StatusOK || !strings.Contains(text, "Mark node b#2 as dead?") || admin.count("cluster down act") != 0 {
		t.Errorf("the confirmation has the status %d: %s", status, text)
	}
	if _, status = b.page("/act?action=cluster.down&node=b"); status != http.StatusMethodNotAllowed {
		t.Errorf("an action by GET got the status %d, want 405", status)
	}
	if _, status = b.post("/act", url.Values{"action": {"cluster.down"}}); status != http.StatusBadRequest {
		t.Errorf("an action without a target got the status %d, want 400", status)
	}
	if _, status = b.post("/act", url.Values{"action": {"cluster.explode"}, "node": {"b"}}); status != http.StatusNotFound {
		t.Errorf("an unknown action got the status %d, want 404", status)
	}
	if _, status = b.post("/act", url.Values{"action": {"cluster.down"}, "node": {"b#2"}}); status != http.StatusOK || admin.count("cluster down act") != 1 {
		t.Errorf("the action got the status %d", status)
	}
	for _, want := range []string{"user=ann", "action=cluster.down", "target_node=b#2"} {
		if !strings.Contains(lines.String(), want) {
			t.Errorf("the log has no %s: %s", want, lines.String())
		}
	}
	admin.set("cluster leave", `{"error":"no such member"}`)
	if text, status = b.post("/act", url.Values{"action": {"cluster.leave"}, "node": {"x"}}); status != http.StatusBadGateway || !strings.Contains(text, "no such member") {
		t.Errorf("a failed action got the status %d, want 502 with the error of the node", status)
	}
	if !strings.Contains(lines.String(), "action failed") {
		t.Errorf("the log has no line about the failed action: %s", lines.String())
	}
}

// Each response has the policy. No page needs more than the policy permits.
func TestContentSecurityPolicy(t *testing.T) {
	t.Parallel()
	b := newBrowser(t, open(t, console.Options{Authorize: anyone, AllowActions: true}))
	inline := regexp.MustCompile(`(?i)<style|\sstyle=|\son[a-z]+=|javascript:|hx-on|hx-vals=.js|<script(?:[^>]*)>[^<]`)
	external := regexp.MustCompile(`(?:src|href|action)="(?:https?:)?//`)
	followed := regexp.MustCompile(`<a href="https://[^"]*" target="_blank" rel="noreferrer">`) // a link loads nothing, and hides the console
	for _, path := range []string{"/", "/shards?shard=1", "/nodes", "/login", "/confirm?action=cluster.leave&node=a", "/stream?page=missing", "/missing"} {
		r := b.get(path)
		policy := r.header.Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "base-uri 'none'", "form-action 'self'", "frame-ancestors 'none'"} {
			if !strings.Contains(policy, want) {
				t.Errorf("%s: the policy %q has no %s", path, policy, want)
			}
		}
		if strings.Contains(policy, "unsafe") || r.header.Get("X-Content-Type-Options") != "nosniff" || r.header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: the headers are %v", path, r.header)
		}
		if found := inline.FindString(r.text); found != "" {
			t.Errorf("%s contains %q, which the policy forbids", path, found)
		}
		if found := external.FindString(followed.ReplaceAllString(r.text, "")); found != "" {
			t.Errorf("%s refers to another host: %s", path, found)
		}
		if strings.HasPrefix(r.text, "<!doctype") && (!strings.Contains(r.text, `"allowEval":false`) || !strings.Contains(r.text, `"includeIndicatorStyles":false`)) {
			t.Errorf("%s does not configure htmx for the policy", path)
		}
	}
}

func TestHostileNamesStayText(t *testing.T) {
	t.Parallel()
	admin := newNodes()
	quoted := strings.ReplaceAll(hostile, `"`, `\"`)
	admin.set("cluster state", strings.ReplaceAll(strings.ReplaceAll(twoMembers, "bank", quoted), "1.0.0", quoted))
	admin.set("sharding regions", strings.ReplaceAll(twoRegions, "account", quoted))
	admin.set("sharding entities", `{"entities":["`+quoted+`"]}`)
	b := newBrowser(t, open(t, console.Options{Admin: admin, Authorize: func(*http.Request, string) (string, error) { return hostile, nil }, AllowActions: true}))
	for _, path := range []string{
		"/", "/shards?shard=1", "/nodes", "/shards?type=" + url.QueryEscape(hostile), "/shards?type=x" + url.QueryEscape(hostile),
		"/confirm?action=cluster.down&node=" + url.QueryEscape(hostile), "/confirm?action=" + url.QueryEscape(hostile), "/login?next=" + url.QueryEscape(hostile),
	} {
		text, _ := b.page(path)
		if strings.Contains(text, "<script>alert") {
			t.Errorf("%s contains a name as markup", path)
		}
		if !strings.Contains(text, "script") {
			t.Errorf("%s does not contain the name at all", path)
		}
	}
}
