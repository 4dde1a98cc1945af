// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package console

import (
	"cmp"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/ddata"
	"github.com/refold-io/refold/internal/fielderror"
	"github.com/refold-io/refold/internal/inspect"
	"github.com/refold-io/refold/sharding"
	"github.com/refold-io/refold/transport"
)

// ErrInvalid matches errors of invalid Options.
var ErrInvalid = errors.New("console: invalid options")

// readAction is the action of a request that changes nothing: see Options.Authorize.
const readAction = "read"

// Options configure a Console.
type Options struct {
	// Admin sends the requests to the nodes, for example that of nats.ConnectOperator, or an Agent
	// for a program without a cluster. Required. The Console does not close it.
	Admin transport.AdminClient
	// Prefix is the path below which the Console is mounted. It begins and ends with a slash.
	// Defaults to "/".
	Prefix string
	// Hosts are the host names, without port, under which browsers may reach the Console. Names of
	// the machine itself (localhost, 127.0.0.1, ::1) are always allowed. Defaults to none.
	Hosts []string
	// AllowActions permits actions, such as draining a node. Defaults to false: all users only read.
	AllowActions bool
	// PasswordFile is a file with one user per line: the name, a colon and the bcrypt hash of the
	// password, as htpasswd -B prints it. A user may act if the line ends with ":act". The file is
	// read for each login. Defaults to none: browsers sign in with a token from LoginURL.
	PasswordFile string
	// Authorize decides about each request instead of the Console, and returns the name of the user
	// for the log. The action is "read" or the name of an action, such as "cluster.down". An error
	// refuses the request, and the browser gets its text. It excludes PasswordFile. Defaults to nil.
	Authorize func(r *http.Request, action string) (user string, err error)
	// TraceURL is the address of a trace in a tracing system. It contains {trace} in the place of the
	// ID. Defaults to none: pages show the IDs of traces as text.
	TraceURL string
	// Interval is the time between two polls of the nodes, at least 100 ms. Defaults to 2 s.
	Interval time.Duration
	// Logger gets a line for each action and each failed login. Its handler must not block. Defaults
	// to a logger that discards all lines.
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	o.Prefix = cmp.Or(o.Prefix, "/")
	o.Interval = cmp.Or(o.Interval, 2*time.Second)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

func (o *Options) validate() error {
	var errs fielderror.Errors
	if o.Admin == nil {
		errs.Addf("Options.Admin", "is missing")
	}
	if !strings.HasPrefix(o.Prefix, "/") || !strings.HasSuffix(o.Prefix, "/") || strings.Contains(o.Prefix, "//") || (&url.URL{Path: o.Prefix}).EscapedPath() != o.Prefix {
		errs.Addf("Options.Prefix", "is %q, it must be a path that begins and ends with a slash and needs no escapes", o.Prefix)
	}
	for _, h := range o.Hosts {
		if hostname(h) != h || h == "" {
			errs.Addf("Options.Hosts", "contains %q, it must contain host names without port", h)
		}
	}
	if u, err := url.Parse(strings.ReplaceAll(o.TraceURL, "{trace}", "0")); o.TraceURL != "" && (err != nil || u.Scheme != "https" && u.Scheme != "http" || !strings.Contains(o.TraceURL, "{trace}")) {
		errs.Addf("Options.TraceURL", "is %q, it must be an http address that contains {trace}", o.TraceURL)
	}
	if o.Interval < 100*time.Millisecond {
		errs.Addf("Options.Interval", "is %v, it must be at least 100ms", o.Interval)
	}
	if o.PasswordFile != "" {
		if o.Authorize != nil {
			errs.Addf("Options.PasswordFile", "is set, but Options.Authorize as well")
		}
		if _, err := readPasswords(o.PasswordFile); err != nil {
			errs.Add("Options.PasswordFile", err)
		}
	}
	return errs.Err(ErrInvalid)
}

// Console serves the pages. Its methods are safe for concurrent use.
type Console struct {
	opts     Options
	members  *cluster.Admin
	shards   *sharding.Admin
	data     *ddata.Admin
	inspect  *inspect.Client
	assets   *assets
	pages    map[string]*page
	actions  map[string]*action
	sessions *sessions
	poller   *poller
	mux      *http.ServeMux
	closed   chan struct{} // closed by poller.close
}

// New returns a Console. The error matches ErrInvalid and names the invalid fields. Close ends the
// Console.
func New(opts Options) (*Console, error) {
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	c := &Console{
		opts: opts, members: cluster.NewAdmin(opts.Admin), shards: sharding.NewAdmin(opts.Admin), data: ddata.NewAdmin(opts.Admin), inspect: inspect.NewClient(opts.Admin),
		sessions: newSessions(opts.PasswordFile != ""), closed: make(chan struct{}), mux: http.NewServeMux(),
	}
	c.poller = newPoller(c)
	c.assets = loadAssets(opts.Prefix)
	c.actions = actionTable()
	c.pages = pageTable(c)
	for _, p := range c.pages {
		c.mux.Handle("GET "+p.pattern, c.shown(p))
	}
	c.mux.HandleFunc("GET /assets/{name}", c.assets.serve)
	c.mux.HandleFunc("GET /login", c.loginPage)
	c.mux.HandleFunc("POST /login", c.login)
	c.mux.HandleFunc("POST /logout", c.logout)
	c.mux.HandleFunc("POST /theme", c.theme)
	c.mux.HandleFunc("GET /stream", c.stream)
	c.mux.HandleFunc("GET /entities/{id}/state", c.showMoment)
	c.mux.HandleFunc("GET /entities/{id}/live", c.showLive)
	c.mux.HandleFunc("GET /confirm", c.confirm)
	c.mux.HandleFunc("POST /act", c.act)
	return c, nil
}

// ServeHTTP serves a request below Options.Prefix.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	setHeaders(w.Header())
	if err := c.checkOrigin(r); err != nil {
		c.opts.Logger.WarnContext(r.Context(), "console: request refused", slog.String("remote", r.RemoteAddr), slog.Any("error", err))
		http.Error(w, err.Error(), http.StatusForbidden)
		return
	}
	if r.URL.Path+"/" == c.opts.Prefix {
		http.Redirect(w, r, c.opts.Prefix, http.StatusPermanentRedirect)
		return
	}
	if !strings.HasPrefix(r.URL.EscapedPath(), c.opts.Prefix) {
		http.NotFound(w, r)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, 64<<10)
	http.StripPrefix(strings.TrimSuffix(c.opts.Prefix, "/"), c.mux).ServeHTTP(w, r)
}

// Close ends all streams and the poller. Further requests for streams are refused. Call it before
// http.Server.Shutdown, which otherwise waits for the streams, for example with
// http.Server.RegisterOnShutdown.
func (c *Console) Close() { c.poller.close() }

// ends reports that the console is closed.
func (c *Console) ends() bool {
	select {
	case <-c.closed:
		return true
	default:
		return false
	}
}
