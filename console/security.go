// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package console

import (
	"bufio"
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/bcrypt"
)

const (
	sessionTime  = 12 * time.Hour
	tokenTime    = time.Hour
	maxSessions  = 1000
	maxTokens    = 16
	maxFailures  = 10 // failed logins of an address per minute
	maxAddresses = 1000
	maxHashing   = 2 // passwords that are checked at the same time
	maxPassword  = 72
)

// policy forbids everything that the pages do not need. In particular it forbids inline scripts,
// inline styles and eval.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

func setHeaders(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	// With no-referrer, browsers would send forms with the origin null.
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()")
	h.Set("Cache-Control", "no-store")
}

// hostname returns the name in a Host header or in an address, without port and brackets, in lower
// case.
func hostname(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return strings.ToLower(strings.Trim(host, "[]"))
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// checkOrigin refuses requests to a foreign host name and requests from foreign pages. A page on
// another site can send requests to the console through a browser, and can let its own host name
// point to the console.
func (c *Console) checkOrigin(r *http.Request) error {
	if host := hostname(r.Host); !loopback(host) && !slices.ContainsFunc(c.opts.Hosts, func(h string) bool { return strings.EqualFold(h, host) }) {
		return fmt.Errorf("console: the host %.100q is not one of Options.Hosts", host)
	}
	origin, site := r.Header.Get("Origin"), r.Header.Get("Sec-Fetch-Site")
	safe := r.Method == http.MethodGet || r.Method == http.MethodHead
	switch {
	case origin != "":
		if u, err := url.Parse(origin); err != nil || u.Host == "" || !strings.EqualFold(u.Host, r.Host) {
			return fmt.Errorf("console: a request from the origin %.100q is not allowed", origin)
		}
	case !safe && site != "same-origin":
		return fmt.Errorf("console: %s without the header Origin is not allowed", r.Method)
	}
	if site != "" && site != "same-origin" && site != "none" && (!safe || r.Header.Get("Sec-Fetch-Mode") != "navigate") {
		return errors.New("console: a request from another site is not allowed")
	}
	return nil
}

// user is the sender of a request. act reports that the user may act.
type user struct {
	name string
	act  bool
}

type session struct {
	user

	end time.Time
}

type failures struct {
	count int
	until time.Time
}

// sessions holds the sessions and unused tokens, by the hash of their secrets.
type sessions struct {
	cookie  string // differs between consoles, because browsers do not separate cookies by port
	hashing chan struct{}
	// decoy is the hash of a random password. It is checked for unknown users, so that the time of a
	// reply does not depend on the existence of a user.
	decoy []byte

	mu     sync.Mutex
	tokens map[[32]byte]time.Time
	live   map[[32]byte]session
	failed map[string]failures // by the address of the client
}

func newSessions(passwords bool) *sessions {
	var decoy []byte
	if passwords {
		decoy, _ = bcrypt.GenerateFromPassword([]byte(secret()[:maxPassword/2]), bcrypt.DefaultCost) // the password is short enough
	}
	return &sessions{
		cookie: "refold-console-" + secret()[:8], hashing: make(chan struct{}, maxHashing), decoy: decoy,
		tokens: map[[32]byte]time.Time{}, live: map[[32]byte]session{}, failed: map[string]failures{},
	}
}

// secret returns 256 random bits as text.
func secret() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // it never fails
	return hex.EncodeToString(b)
}

func hashed(secret string) [32]byte { return sha256.Sum256([]byte(secret)) }

// admit adds a key with an end to a bounded map. If the map is full, the entry with the earliest end
// makes room.
func admit[V any](m map[[32]byte]V, most int, key [32]byte, v V, end func(V) time.Time) {
	if len(m) >= most {
		var first [32]byte
		var at time.Time
		for k, old := range m {
			if e := end(old); at.IsZero() || e.Before(at) {
				first, at = k, e
			}
		}
		delete(m, first)
	}
	m[key] = v
}

// newToken returns a token that admits one browser.
func (s *sessions) newToken(now time.Time) string {
	token := secret()
	s.mu.Lock()
	defer s.mu.Unlock()
	admit(s.tokens, maxTokens, hashed(token), now.Add(tokenTime), func(end time.Time) time.Time { return end })
	return token
}

// redeem removes a token and reports whether it was valid.
func (s *sessions) redeem(token string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	end, ok := s.tokens[hashed(token)]
	delete(s.tokens, hashed(token))
	return ok && now.Before(end)
}

func (s *sessions) begin(u user, now time.Time) (id string) {
	id = secret()
	s.mu.Lock()
	defer s.mu.Unlock()
	admit(s.live, maxSessions, hashed(id), session{u, now.Add(sessionTime)}, func(s session) time.Time { return s.end })
	return id
}

func (s *sessions) find(r *http.Request, now time.Time) (user, bool) {
	cookie, err := r.Cookie(s.cookie)
	if err != nil {
		return user{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	found, ok := s.live[hashed(cookie.Value)]
	return found.user, ok && now.Before(found.end)
}

func (s *sessions) end(r *http.Request) {
	if cookie, err := r.Cookie(s.cookie); err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.live, hashed(cookie.Value))
	}
}

// barred reports whether an address has failed too often in the last minute.
func (s *sessions) barred(address string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.failed[address]
	return f.count >= maxFailures && now.Before(f.until)
}

func (s *sessions) fail(address string, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.failed[address]
	if !now.Before(f.until) {
		f = failures{until: now.Add(time.Minute)}
	}
	f.count++
	if len(s.failed) >= maxAddresses {
		clear(s.failed)
	}
	s.failed[address] = f
}

// password is the line of a user in the password file.
type password struct {
	hash []byte
	act  bool
}

func readPasswords(path string) (map[string]password, error) {
	f, err := os.Open(path) //nolint:gosec // the path is a setting
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	all := map[string]password{}
	lines := bufio.NewScanner(f)
	for nr := 1; lines.Scan(); nr++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, hash, _ := strings.Cut(line, ":")
		hash, right, _ := strings.Cut(hash, ":")
		if _, err := bcrypt.Cost([]byte(hash)); err != nil || name == "" || right != "" && right != "act" {
			return nil, fmt.Errorf("%s:%d: want a name, a bcrypt hash and optionally \"act\", separated by colons", path, nr)
		}
		all[name] = password{[]byte(hash), right == "act"}
	}
	return all, lines.Err()
}

// checkPassword returns the user with a name and a password.
func (c *Console) checkPassword(r *http.Request, name, text string) (user, bool) {
	select {
	case c.sessions.hashing <- struct{}{}:
		defer func() { <-c.sessions.hashing }()
	case <-r.Context().Done():
		return user{}, false
	}
	all, err := readPasswords(c.opts.PasswordFile)
	if err != nil {
		c.opts.Logger.ErrorContext(r.Context(), "console: the password file is unusable", slog.Any("error", err))
	}
	p, known := all[name]
	hash := p.hash
	if !known {
		hash = c.sessions.decoy
	}
	same := len(text) <= maxPassword && bcrypt.CompareHashAndPassword(hash, []byte(text)) == nil
	return user{name, p.act}, known && same
}

// private reports whether a secret in a request cannot be read on the network.
func private(r *http.Request) bool { return r.TLS != nil || loopback(hostname(r.RemoteAddr)) }

// LoginURL returns the address of the console with a token that admits one browser within an hour.
// origin is the scheme, the host and the port of the server, such as "http://127.0.0.1:8080". The
// user of the token is "token"; it may act if Options.AllowActions is true. At most 16 tokens are
// valid at the same time. The token has no effect with Options.PasswordFile or Options.Authorize.
func (c *Console) LoginURL(origin string) string {
	return strings.TrimSuffix(origin, "/") + c.opts.Prefix + "login?token=" + c.sessions.newToken(time.Now())
}

// byToken reports whether browsers sign in with a token.
func (c *Console) byToken() bool { return c.opts.Authorize == nil && c.opts.PasswordFile == "" }

type loginView struct {
	Problem  string
	Password bool
	Next     string
}

func (c *Console) loginPage(w http.ResponseWriter, r *http.Request) {
	if token := r.FormValue("token"); token != "" && c.byToken() {
		switch now := time.Now(); {
		case !private(r):
			c.askLogin(w, r, http.StatusForbidden, "A token is accepted over TLS or from the machine itself only.")
		case !c.sessions.redeem(token, now):
			c.opts.Logger.WarnContext(r.Context(), "console: login failed", slog.String("remote", r.RemoteAddr), slog.String("by", "token"))
			c.askLogin(w, r, http.StatusForbidden, "The token is wrong, used or expired.")
		default:
			c.admitUser(w, r, user{"token", true}, "")
		}
		return
	}
	c.askLogin(w, r, http.StatusOK, "")
}

func (c *Console) askLogin(w http.ResponseWriter, r *http.Request, status int, problem string) {
	next := r.FormValue("next")
	if strings.HasSuffix(r.URL.Path, "/login") && next == "" {
		next = c.opts.Prefix
	}
	v := c.newView(r, user{}, "Sign in")
	v.Data = loginView{problem, c.opts.PasswordFile != "", cmp.Or(next, c.opts.Prefix+strings.TrimPrefix(r.URL.RequestURI(), "/"))}
	c.render(w, status, "login", "page", v)
}

func (c *Console) login(w http.ResponseWriter, r *http.Request) {
	now, address := time.Now(), hostname(r.RemoteAddr)
	switch {
	case c.opts.PasswordFile == "":
		c.askLogin(w, r, http.StatusForbidden, "This console has no passwords.")
		return
	case !private(r):
		c.askLogin(w, r, http.StatusForbidden, "A password is accepted over TLS or from the machine itself only.")
		return
	case c.sessions.barred(address, now):
		c.askLogin(w, r, http.StatusTooManyRequests, "Too many failed attempts from this address. Try again in a minute.")
		return
	}
	u, ok := c.checkPassword(r, r.PostFormValue("user"), r.PostFormValue("password"))
	if !ok {
		c.sessions.fail(address, now)
		c.opts.Logger.WarnContext(r.Context(), "console: login failed", slog.String("remote", r.RemoteAddr), slog.String("user", truncated(r.PostFormValue("user"), 100)))
		c.askLogin(w, r, http.StatusForbidden, "The name or the password is wrong.")
		return
	}
	c.admitUser(w, r, u, r.PostFormValue("next"))
}

func (c *Console) admitUser(w http.ResponseWriter, r *http.Request, u user, next string) {
	http.SetCookie(w, &http.Cookie{ //nolint:gosec // Secure depends on the connection
		Name: c.sessions.cookie, Value: c.sessions.begin(u, time.Now()), Path: c.opts.Prefix, MaxAge: int(sessionTime.Seconds()),
		HttpOnly: true, Secure: r.TLS != nil, SameSite: http.SameSiteStrictMode,
	})
	http.Redirect(w, r, c.local(next), http.StatusSeeOther) //nolint:gosec // local admits paths of the console only
}

// local returns a path below the prefix, and the prefix for all other addresses.
func (c *Console) local(to string) string {
	u, err := url.Parse(to)
	if err != nil || u.Scheme != "" || u.Host != "" || !strings.HasPrefix(u.Path, c.opts.Prefix) || strings.HasPrefix(to, "//") || strings.ContainsAny(to, "\\\r\n") {
		return c.opts.Prefix
	}
	return to
}

func (c *Console) logout(w http.ResponseWriter, r *http.Request) {
	c.sessions.end(r)
	http.SetCookie(w, &http.Cookie{Name: c.sessions.cookie, Path: c.opts.Prefix, MaxAge: -1, HttpOnly: true, Secure: r.TLS != nil, SameSite: http.SameSiteStrictMode}) //nolint:gosec // Secure depends on the connection
	http.Redirect(w, r, c.opts.Prefix+"login", http.StatusSeeOther)
}

var errNotSignedIn = errors.New("console: not signed in")

// authorize returns the user of a request. The error is errNotSignedIn if the browser must sign in
// first.
func (c *Console) authorize(r *http.Request, action string) (user, error) {
	if action != readAction && !c.opts.AllowActions {
		return user{}, errors.New("console: actions are not allowed: Options.AllowActions is false")
	}
	if c.opts.Authorize != nil {
		name, err := c.opts.Authorize(r, action)
		if err != nil {
			return user{}, err
		}
		return user{name, c.opts.AllowActions}, nil
	}
	u, ok := c.sessions.find(r, time.Now())
	u.act = u.act && c.opts.AllowActions
	switch {
	case !ok:
		return user{}, errNotSignedIn
	case action != readAction && !u.act:
		return user{}, fmt.Errorf("console: the user %q may not act", u.name)
	}
	return u, nil
}

// admitted returns the user of a request, or answers the request.
func (c *Console) admitted(w http.ResponseWriter, r *http.Request, action string) (user, bool) {
	u, err := c.authorize(r, action)
	switch {
	case err == nil:
		return u, true
	case !errors.Is(err, errNotSignedIn):
		c.opts.Logger.WarnContext(r.Context(), "console: request denied", slog.String("remote", r.RemoteAddr), slog.String("action", action), slog.Any("error", err))
		c.problem(w, r, http.StatusForbidden, "Not allowed", err.Error())
	case r.Header.Get("Hx-Request") != "" || strings.HasSuffix(r.URL.Path, "/stream"):
		http.Error(w, "sign in first", http.StatusUnauthorized)
	default:
		c.askLogin(w, r, http.StatusUnauthorized, "")
	}
	return user{}, false
}

// theme stores the colour theme that the user selects in a cookie.
func (c *Console) theme(w http.ResponseWriter, r *http.Request) {
	theme := r.PostFormValue("theme")
	if theme != "light" && theme != "dark" {
		theme = "auto"
	}
	http.SetCookie(w, &http.Cookie{ //nolint:gosec // Secure depends on the connection
		Name: themeCookie, Value: theme, Path: c.opts.Prefix, MaxAge: 365 * 24 * 3600, HttpOnly: true, Secure: r.TLS != nil, SameSite: http.SameSiteStrictMode,
	})
	http.Redirect(w, r, c.local(r.PostFormValue("next")), http.StatusSeeOther) //nolint:gosec // as above
}

const themeCookie = "refold-console-theme"

func themeOf(r *http.Request) string {
	if cookie, err := r.Cookie(themeCookie); err == nil && (cookie.Value == "light" || cookie.Value == "dark") {
		return cookie.Value
	}
	return "auto"
}

func truncated(s string, most int) string { return s[:min(len(s), most)] }
