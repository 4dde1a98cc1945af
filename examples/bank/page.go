// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !embedded

package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"html/template"
	"log/slog"
	"math/big"
	"mime"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/console"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/examples/bank/batch"
	"github.com/refold-io/refold/examples/bank/money"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/sharding"
	"github.com/refold-io/refold/transport"
)

// The page for browsers: a template, a style sheet, and a script. The page works without the script,
// which only adds live updates.
//
//go:embed page
var pageFiles embed.FS

var pageTemplate = template.Must(template.ParseFS(pageFiles, "page/index.html"))

// pagePolicy allows the page its own files and nothing else: no inline script, no inline style.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

// webPage is the page for browsers. It stores nothing: it executes the commands of the forms and
// shows the events in the journal and their sums.
type webPage struct {
	ctx      context.Context        //nolint:containedctx // ends with the server
	bank     func() (*bank, string) // a running bank, and the name of its branch
	branches *branches              // the branches in this process, or nil
	registry *codec.Registry        // the events of accounts
	logger   *slog.Logger
	console  *console.Console // or nil
	readOnly bool             // the console permits no actions

	ledger  pageLedger
	visited chan struct{} // closed by the first visit
	visit   func()
	work    sync.WaitGroup
	busy    sync.Mutex // held by an audit
	traffic traffic
}

// openPage returns the page. Its work ends with ctx; wait returns after that.
func openPage(ctx context.Context, ask func() (*bank, string), log *slog.Logger) *webPage {
	p := &webPage{ctx: ctx, bank: ask, registry: AccountType(nil).Events, logger: log, visited: make(chan struct{})}
	p.visit = sync.OnceFunc(func() { close(p.visited) })
	p.work.Go(p.follow)
	return p
}

const consolePath = "/console/"

// mount adds the console to the page. Like the API, it has no users and no passwords. Therefore it
// permits actions only if other machines cannot reach the address of the page.
func (p *webPage) mount(admin transport.AdminClient, addr net.Addr, hosts []string) (err error) {
	p.readOnly = !local(addr)
	p.console, err = console.New(console.Options{
		Admin: admin, Prefix: consolePath, Hosts: hosts, AllowActions: !p.readOnly, Logger: p.logger,
		Authorize: func(*http.Request, string) (user string, err error) { return "bank", nil },
	})
	if err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	p.work.Go(func() {
		<-p.ctx.Done()
		p.console.Close() // ends its streams, for which the server would wait
	})
	return nil
}

// agent starts an agent that shows the bank to a console: its journal, its accounts and its load, which
// meter measures. In a branch, node makes it available to the operators of the cluster.
func (b *bank) agent(meter *console.Meter, node *cluster.Node, log *slog.Logger) (*console.Agent, error) {
	return console.NewAgent(console.AgentConfig{
		Runtime: b.runtime, Types: []console.Type{console.TypeOf(b.typ)}, Meter: meter, Node: node, AllowActions: true, Logger: log,
	})
}

// wait returns when the work of the page has ended. No request may be pending.
func (p *webPage) wait() { p.work.Wait() }

// handler returns the handler of the page. It passes all other requests to the API, and GET / if
// the client is no browser.
func (p *webPage) handler(api http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", api)
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Vary", "Accept")
		if !acceptsHTML(r.Header.Get("Accept")) {
			api.ServeHTTP(w, r)
			return
		}
		p.show(w, r, http.StatusOK, nil)
	})
	mux.HandleFunc("GET /page/stream", p.stream)
	mux.HandleFunc("GET /page/{name}", p.asset)
	mux.HandleFunc("POST /page/audit", p.audit)
	mux.HandleFunc("POST /page/demo", p.demo)
	mux.HandleFunc("POST /page/traffic", p.startTraffic)
	for _, command := range []string{batch.Open, batch.Deposit, batch.Withdraw, batch.Transfer, batch.Close} {
		mux.HandleFunc("POST /page/"+command, func(w http.ResponseWriter, r *http.Request) { p.command(w, r, command) })
	}
	if p.console != nil {
		mux.Handle(consolePath, p.console)
	}
	if p.branches != nil {
		mux.HandleFunc("POST /page/crash", p.crash)
		mux.HandleFunc("POST /page/restart", p.restart)
	}
	return http.NewCrossOriginProtection().Handler(mux)
}

// acceptsHTML reports whether the client is a browser, which names text/html. A client such as curl
// accepts everything and receives text.
func acceptsHTML(accept string) bool {
	for part := range strings.SplitSeq(accept, ",") {
		kind, params, err := mime.ParseMediaType(part)
		if err != nil || kind != "text/html" {
			continue
		}
		quality, err := strconv.ParseFloat(cmp.Or(params["q"], "1"), 64)
		return err == nil && quality > 0
	}
	return false
}

func (p *webPage) asset(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	data, err := pageFiles.ReadFile("page/" + name)
	if err != nil || strings.HasSuffix(name, ".html") {
		http.NotFound(w, r)
		return
	}
	sum := sha256.Sum256(data)
	protect(w)
	w.Header().Set("Cache-Control", "no-cache") // the browser sends the tag and receives 304
	w.Header().Set("ETag", `"`+hex.EncodeToString(sum[:8])+`"`)
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(data))
}

func protect(w http.ResponseWriter) {
	w.Header().Set("Content-Security-Policy", pagePolicy)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Referrer-Policy", "same-origin")
}

// stream sends an event after each change, so that the browser loads the page again. With branches,
// it sends one each second, because their states have no events.
func (p *webPage) stream(w http.ResponseWriter, r *http.Request) {
	protect(w)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	idle := 15 * time.Second
	if p.branches != nil {
		idle = time.Second
	}
	out := http.NewResponseController(w)
	for {
		changed, number := p.ledger.change()
		_ = out.SetWriteDeadline(time.Now().Add(10 * time.Second)) // unsupported by a recorder in a test
		if _, err := fmt.Fprintf(w, "event: change\ndata: %d\n\n", number); err != nil || out.Flush() != nil {
			return
		}
		pause := time.NewTimer(idle)
		select {
		case <-changed:
		case <-pause.C:
		case <-p.ctx.Done():
		}
		pause.Stop()
		if r.Context().Err() != nil || p.ctx.Err() != nil || !sleep(r.Context(), 100*time.Millisecond) {
			return
		}
	}
}

// command executes the command of a form and shows the page with the outcome.
func (p *webPage) command(w http.ResponseWriter, r *http.Request, command string) {
	o, line, err := p.parse(w, r, command)
	if err == nil {
		err = p.execute(r.Context(), line, o)
	}
	p.answer(w, r, o, err)
}

// outcome is what the page shows about a request.
type outcome struct {
	Command, Account, Owner, To, Amount, Currency, Request string

	Sent     int // how often the customer has sent the request
	Attempts int // how often the page has sent it to a branch
	Branch   string
	Balance  string
	Repeated bool
	Code     string // of a refusal or failure
	Message  string
	Unknown  bool // the request may have been executed
	Stored   []eventView
	Audit    *auditView
	Done     string // for requests that are no command of an account
}

// parse reads a form. The outcome contains its fields, also after an error.
func (p *webPage) parse(w http.ResponseWriter, r *http.Request, command string) (*outcome, batch.Line, error) {
	o := &outcome{Command: command, Sent: 1}
	line := batch.Line{Command: command}
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	if err := r.ParseForm(); err != nil {
		return o, line, badRequest(err)
	}
	field := func(name string) string { return strings.TrimSpace(r.PostForm.Get(name)) }
	for _, values := range r.PostForm {
		if !utf8.ValidString(strings.Join(values, "")) {
			return o, line, badRequest(errText)
		}
	}
	o.Account, o.Owner, o.To, o.Amount, o.Currency = field("account"), field("owner"), field("to"), field("amount"), field("currency")
	if o.Request = field("request"); o.Request == "" {
		o.Request = newRequest()
	}
	if sent, err := strconv.Atoi(field("sent")); err == nil && sent > 0 && sent < 1_000_000 {
		o.Sent = sent + 1
	}
	if line.Account = o.Account; line.Account == "" {
		return o, line, badField("account", errors.New("missing"))
	}
	if line.To = o.To; command == batch.Open {
		line.To = o.Owner
	}
	if command == batch.Close {
		return o, line, nil
	}
	var err error
	if line.Currency, err = money.ParseCurrency(o.Currency); err != nil {
		return o, line, badField("currency", err)
	}
	if command == batch.Open {
		return o, line, nil
	}
	if line.Amount, err = money.Parse(o.Amount, line.Currency); err != nil {
		return o, line, badField("amount", err)
	}
	return o, line, nil
}

// newRequest returns an ID for a request. A form contains the ID before it is sent, so that all
// copies of the request have the same one.
func newRequest() string { return "page-" + strings.ToLower(rand.Text()[:10]) }

const (
	// executePatience is longer than the move of an account after a crash, which takes some seconds.
	executePatience = 20 * time.Second
	attemptTimeout  = 3 * time.Second
	attemptPause    = 200 * time.Millisecond
)

// execute sends a command until it has an outcome or executePatience has passed. A branch may crash
// after it has executed the command, so all attempts have the same request ID.
func (p *webPage) execute(ctx context.Context, line batch.Line, o *outcome) error {
	ctx, cancel := context.WithTimeout(ctx, executePatience)
	defer cancel()
	for {
		o.Attempts++
		var b *bank
		b, o.Branch = p.bank()
		attempt, stop := context.WithTimeout(ctx, attemptTimeout)
		receipt, err := b.execute(attempt, line, o.Request)
		stop()
		if err == nil {
			o.Balance, o.Repeated = grouped(receipt.Balance)+" "+string(receipt.Balance.Currency()), receipt.Repeated
			return nil
		}
		if statusOf(err) < http.StatusInternalServerError || !sleep(ctx, attemptPause) {
			return err
		}
	}
}

// answer shows the page with the outcome of a command.
func (p *webPage) answer(w http.ResponseWriter, r *http.Request, o *outcome, err error) {
	status := http.StatusOK
	if err != nil {
		status, o.Code, o.Message = statusOf(err), eventsourcing.StatusOf(err).Code, err.Error()
		if bad, ok := errors.AsType[*requestError](err); ok {
			status, o.Code = bad.status, bad.code
		}
		if o.Unknown = status >= http.StatusInternalServerError; o.Unknown {
			p.logger.ErrorContext(r.Context(), "request failed", slog.String("path", r.URL.Path), slog.Any("error", err))
			o.Message = "There was no reply in time. The account may have executed the request or not."
		}
	}
	p.show(w, r, status, o)
}

// crash ends a branch without a leave, and restart starts it again.
func (p *webPage) crash(w http.ResponseWriter, r *http.Request) {
	p.change(w, r, "crash", p.branches.crash)
}

func (p *webPage) restart(w http.ResponseWriter, r *http.Request) {
	p.change(w, r, "restart", p.branches.restart)
}

func (p *webPage) change(w http.ResponseWriter, r *http.Request, command string, do func(name string) (string, error)) {
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	o := &outcome{Command: command, Account: r.PostFormValue("view")}
	var err error
	if o.Done, err = do(r.FormValue("branch")); err != nil {
		err = &requestError{http.StatusConflict, "bank/branch", err}
	}
	p.answer(w, r, o, err)
}

// auditPatience bounds an audit, which reads the whole journal.
const auditPatience = 5 * time.Minute

type auditView struct {
	OK    bool
	Moved bool // the journal has changed during the audit, so a difference proves nothing
	Text  string
}

// audit runs the audit and shows its report.
func (p *webPage) audit(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	o := &outcome{Command: "audit", Account: r.PostFormValue("view")}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(auditPatience)) // unsupported by a recorder in a test
	ctx, cancel := context.WithTimeout(r.Context(), auditPatience)
	defer cancel()
	var err error
	if !p.busy.TryLock() {
		err = &requestError{http.StatusConflict, "bank/audit_runs", errors.New("another audit is running")}
	} else {
		o.Audit, err = p.runAudit(ctx)
		p.busy.Unlock()
	}
	p.answer(w, r, o, err)
}

// runAudit repeats an audit that finds differences while the journal changes.
func (p *webPage) runAudit(ctx context.Context) (*auditView, error) {
	b, _ := p.bank()
	for range 3 {
		before, _ := p.end(ctx, b)
		report, err := b.audit(ctx)
		if err != nil {
			return nil, err
		}
		after, _ := p.end(ctx, b)
		var text strings.Builder
		report.print(&text)
		view := &auditView{OK: len(report.violations) == 0, Moved: before != after, Text: text.String()}
		if view.OK || !view.Moved {
			return view, nil
		}
	}
	return &auditView{Moved: true}, nil
}

func (p *webPage) end(ctx context.Context, b *bank) (journal.Offset, error) {
	q, ok := journal.As[journal.Querier](b.journal)
	if !ok {
		return "", journal.ErrNoQueries
	}
	return q.End(ctx)
}

// demoAccounts are opened by one button. Their requests have fixed IDs, so the button has an effect
// only once.
var demoAccounts = []struct {
	id, owner string
	deposit   money.Amount
}{
	{"alice", "Alice Chen", money.New(100_000, money.USD)},
	{"bob", "Bob Lin", money.New(3_000_000, money.TWD)},
	{"carol", "Carol Wu", money.New(50_000, money.USD)},
	{"dave", "Dave Huang", money.New(1_000_000, money.TWD)},
	{"erin", "Erin Tsai", money.New(25_000, money.USD)},
	{"frank", "Frank Lee", money.New(500_000, money.TWD)},
}

func (p *webPage) demo(w http.ResponseWriter, r *http.Request) {
	o := &outcome{Command: "demo", Account: demoAccounts[0].id, Request: "demo-deposit"}
	var err error
	for _, a := range demoAccounts {
		for _, line := range []batch.Line{
			{Command: batch.Open, Account: a.id, Currency: a.deposit.Currency(), To: a.owner},
			{Command: batch.Deposit, Account: a.id, Currency: a.deposit.Currency(), Amount: a.deposit},
		} {
			each := &outcome{Request: "demo-" + line.Command}
			err = errors.Join(err, p.execute(r.Context(), line, each))
		}
	}
	if err == nil {
		o.Done = fmt.Sprintf("%d accounts are open. Select one, or start a transfer.", len(demoAccounts))
	}
	p.answer(w, r, o, err)
}

// traffic is a number of small transfers, so that a branch can crash while money moves.
type traffic struct {
	mu sync.Mutex
	trafficView
}

type trafficView struct {
	Running                      bool
	Total, Done, Refused, Resent int
}

const (
	trafficAccounts = 8
	trafficEach     = 25 // transfers of each account
	trafficPause    = 300 * time.Millisecond
)

// startTraffic starts small transfers between the accounts, and does not wait for their end.
func (p *webPage) startTraffic(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	o := &outcome{Command: "traffic", Account: r.PostFormValue("view")}
	p.visit()
	p.ledger.await(r.Context(), func() bool { return p.ledger.complete })
	accounts := p.ledger.pick(trafficAccounts)
	var err error
	switch {
	case len(accounts) < 2:
		err = &requestError{http.StatusConflict, "bank/too_few_accounts", errors.New("open two accounts with a balance first")}
	case !p.traffic.start(len(accounts) * trafficEach):
		err = &requestError{http.StatusConflict, "bank/traffic_runs", errors.New("the transfers are still running")}
	default:
		o.Done = fmt.Sprintf("%d accounts send %d small transfers each.", len(accounts), trafficEach)
		p.work.Go(func() { p.send(accounts) })
	}
	p.answer(w, r, o, err)
}

// start reports whether no transfers were running.
func (t *traffic) start(n int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.Running {
		return false
	}
	t.trafficView = trafficView{Running: true, Total: n}
	return true
}

func (p *webPage) send(accounts []ledgerAccount) {
	run := newRequest()
	var senders sync.WaitGroup
	for i, from := range accounts {
		senders.Go(func() {
			for n := range trafficEach {
				to := accounts[(i+1+n%(len(accounts)-1))%len(accounts)]
				o := &outcome{Request: fmt.Sprintf("%s-%d", run, n)}
				line := batch.Line{Command: batch.Transfer, Account: from.id, To: to.id, Amount: money.New(100, from.currency)}
				err := p.execute(p.ctx, line, o)
				for err != nil && statusOf(err) >= http.StatusInternalServerError && p.ctx.Err() == nil {
					err = p.execute(p.ctx, line, o) // the same request again
				}
				p.traffic.count(o, err)
				if !sleep(p.ctx, trafficPause) {
					return
				}
			}
		})
	}
	senders.Wait()
	p.traffic.mu.Lock()
	defer p.traffic.mu.Unlock()
	p.traffic.Running = false
}

func (t *traffic) count(o *outcome, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.Done++
	t.Resent += o.Attempts - 1
	if err != nil {
		t.Refused++
	}
}

// The rest of the file prepares the data of the template.

type pageView struct {
	URL      string // of the page without an outcome
	Outcome  *outcome
	Fresh    freshRequests
	Rates    []rateView
	Books    []bookView
	Events   int  // that the ledger has added
	Loading  bool // the ledger has not reached the end of the journal yet
	Accounts []accountRow
	More     int // accounts that are not listed
	Account  *accountView
	Latest   []eventView
	Travel   []transferView
	Traffic  trafficView
	Cluster  bool
	Branches []branchView
	Console  bool
	ReadOnly bool // the console permits no actions
}

// freshRequests are the IDs of the next requests, one for each form.
type freshRequests struct{ Open, Cash, Transfer, Close string }

type rateView struct{ From, To, Rate, Source, AsOf, Age, Problem string }

// bookView is the sum of all accounts in a currency. Sum and Cash come from different events, and
// are equal.
type bookView struct {
	Currency, Accounts, InFlight, Desk, Sum, Cash string
	Balanced                                      bool
}

type accountRow struct {
	ID, Owner, Currency, Balance, Branch string
	Last                                 uint64
	Selected, Closed                     bool
}

type accountView struct {
	ID, Owner, Status, Currency, Balance, Value, InFlight, Branch, Time, Problem string
	At, Last, Without                                                            uint64
	Past                                                                         bool
	Lines                                                                        []lineView
	Earlier                                                                      int
}

type lineView struct {
	statementLine

	When, Delta, After string
	Negative           bool
}

type eventView struct {
	Account, Name, When, Request string
	Number                       uint64
	Fields                       []fieldView
	New                          bool
}

type fieldView struct{ Name, Value string }

type transferView struct {
	ID, From, To, Amount, Credited, Reason, State string
	Steps                                         []stepView
}

// stepView is a step of a transfer. State is done, next, waiting, or refused.
type stepView struct{ Name, Account, Branch, Event, When, State string }

type branchView struct {
	Name, Address, Port, State, Reason, Seen string
	Shards, Accounts, Waiting                int
	Coordinator, Crash, Restart              bool
}

// Sizes of the lists on the page.
const (
	shownAccounts  = 12
	shownLines     = 10
	shownEvents    = 7
	shownTransfers = 4
	// showPatience bounds how long a response waits for the ledger.
	showPatience = 2 * time.Second
)

// show writes the page. If the outcome has a request, show waits until the ledger has its event.
func (p *webPage) show(w http.ResponseWriter, r *http.Request, status int, o *outcome) {
	p.visit()
	ctx, cancel := context.WithTimeout(r.Context(), showPatience)
	defer cancel()
	stored := o != nil && o.Request != "" && o.Code == ""
	p.ledger.await(ctx, func() bool {
		if !p.ledger.complete || !stored {
			return p.ledger.complete
		}
		o.Stored = p.ledger.stored(o.Account, o.Request)
		return len(o.Stored) > 0 || o.Repeated
	})
	view := p.view(r, o)
	var page bytes.Buffer
	if err := pageTemplate.Execute(&page, view); err != nil {
		p.logger.ErrorContext(r.Context(), "page: the template failed", slog.Any("error", err))
		http.Error(w, "the page is unavailable; the log of the bank (-v) has the reason", http.StatusInternalServerError)
		return
	}
	protect(w)
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(page.Bytes()) // an error means that the client is gone
}

func (p *webPage) view(r *http.Request, o *outcome) *pageView {
	q := r.URL.Query()
	v := &pageView{
		Outcome: o, Console: p.console != nil, ReadOnly: p.readOnly, Cluster: p.branches != nil,
		Fresh: freshRequests{newRequest(), newRequest(), newRequest(), newRequest()},
	}
	selected := q.Get("account")
	if o != nil && o.Account != "" {
		selected = o.Account
	}
	home := func(string) string { return "" }
	if p.branches != nil {
		v.Branches, home = p.branches.view(r.Context())
	}
	p.traffic.mu.Lock()
	v.Traffic = p.traffic.trafficView
	p.traffic.mu.Unlock()
	b, _ := p.bank()
	v.Rates = rateViews(b, time.Now())
	p.ledger.view(v, &selected, home)
	v.URL = "/"
	if selected != "" {
		at, _ := strconv.ParseUint(q.Get("at"), 10, 63) // 0 is the present
		without, _ := strconv.ParseUint(q.Get("without"), 10, 63)
		v.Account = accountViewOf(r.Context(), b, selected, at, without)
		v.Account.Branch = home(selected)
		v.URL = v.Account.url()
	}
	return v
}

func (a *accountView) url() string {
	q := url.Values{"account": {a.ID}}
	if a.Past {
		q.Set("at", strconv.FormatUint(a.At, 10))
	}
	if a.Without > 0 {
		q.Set("without", strconv.FormatUint(a.Without, 10))
	}
	return "/?" + q.Encode()
}

// accountViewOf returns an account after an event, or the present one if at is 0, and its
// statement up to there. It reads the journal, so it does not matter where the account runs.
func accountViewOf(ctx context.Context, b *bank, id string, at, without uint64) *accountView {
	v := &accountView{ID: id, Without: without}
	err := b.statement(ctx, id, time.Time{}, time.Time{}, func(l statementLine) error {
		v.Last = l.Number
		if at > 0 && l.Number > at {
			return nil
		}
		v.At, v.Time = l.Number, l.Time.Format(time.DateOnly+" "+clockFormat)
		v.Lines = append(v.Lines, lineView{
			statementLine: l, When: l.Time.Format(clockFormat), Delta: signed(l.Change), After: grouped(l.Balance), Negative: l.Change.Minor() < 0,
		})
		if len(v.Lines) > shownLines {
			v.Lines, v.Earlier = v.Lines[1:], v.Earlier+1
		}
		return nil
	})
	var seen glimpse
	if err == nil {
		slices.Reverse(v.Lines)
		v.Past = v.At < v.Last
		past := pastOf(v.At, time.Time{}, nil)
		if without > 0 {
			past = pastOf(v.At, time.Time{}, []uint64{without})
		}
		seen, err = b.lookup(ctx, id, past, other(v.Lines))
		if errors.Is(err, ErrNoRate) || errors.Is(err, ErrStaleRate) || errors.Is(err, ErrOverflow) {
			seen, err = b.lookup(ctx, id, past, "")
		}
	}
	if err != nil {
		v.Problem = err.Error()
		return v
	}
	v.Owner, v.Status, v.Currency = seen.view.Owner, status(seen.view), string(seen.view.Currency)
	v.Balance, v.InFlight = grouped(seen.view.Balance), grouped(seen.view.InFlight)
	if x := seen.view.Value; x.Rate != "" {
		v.Value = fmt.Sprintf("%s %s at %s", grouped(x.Amount), x.Amount.Currency(), x.Rate)
	}
	return v
}

// other returns the currency that the account of a statement does not have.
func other(lines []lineView) money.Currency {
	if lines[0].Balance.Currency() == money.USD {
		return money.TWD
	}
	return money.USD
}

func grouped(a money.Amount) string { return decimal(big.NewInt(a.Minor())) }

func signed(a money.Amount) string {
	switch {
	case a.IsZero():
		return ""
	case a.Positive():
		return "+" + grouped(a)
	}
	return grouped(a)
}

func rateViews(b *bank, now time.Time) (all []rateView) {
	for _, from := range slices.Backward(money.Currencies()) {
		for _, to := range money.Currencies() {
			if from == to {
				continue
			}
			v := rateView{From: string(from), To: string(to)}
			if quote, err := b.rates.Quote(from, to, now); err != nil {
				v.Problem = err.Error()
			} else {
				v.Rate, v.Source, v.AsOf, v.Age = string(quote.Rate), quote.Source, quote.AsOf.Format(time.RFC3339), age(now.Sub(quote.AsOf))
			}
			all = append(all, v)
		}
	}
	return all
}

// age formats the age of a rate in its largest unit.
func age(d time.Duration) string {
	unit, name := time.Second, "second"
	for _, u := range []struct {
		size time.Duration
		name string
	}{{24 * time.Hour, "day"}, {time.Hour, "hour"}, {time.Minute, "minute"}} {
		if d >= u.size {
			unit, name = u.size, u.name
			break
		}
	}
	n := max(0, int64(d/unit))
	if n != 1 {
		name += "s"
	}
	return fmt.Sprintf("%d %s", n, name)
}

// view returns the branches, and a function that returns the branch of an account. Without a branch,
// it returns "moving", "starting" if the account waits for its events, or "at rest" if the account
// starts with its next command.
func (s *branches) view(ctx context.Context) ([]branchView, func(id string) string) {
	all, addresses := s.snapshot()
	var views []branchView
	shards := make(map[sharding.Shard]sharding.ShardState)
	homes := make(map[string]string)
	var judge *branch // a running branch
	leaves := false   // the others have not removed a branch yet that has ended
	for _, b := range all {
		if b.runs() {
			judge = b
		}
	}
	for i, b := range all {
		name := b.node.Self().Name
		_, port, _ := net.SplitHostPort(addresses[i])
		v := branchView{Name: name, Address: addresses[i], Port: port, State: "running", Crash: true}
		state, err := b.region.State(ctx)
		switch {
		case closed(b.node.Done()):
			v.State, v.Crash, v.Restart = "ended", false, true
			if v.Reason = fmt.Sprint(b.node.Err()); errors.Is(b.node.Err(), cluster.ErrStopped) {
				v.State, v.Reason = "crashed", ""
			}
		case closed(b.node.Stopping()):
			v.State, v.Crash = "crashing", false
		case !b.region.Ready():
			v.State = "joining"
		case err == nil:
			v.Shards, v.Waiting = len(state.Shards), state.Waiting
			v.Coordinator = state.Registered && state.Coordinator == b.node.Self()
			for _, shard := range state.Shards {
				v.Accounts += len(shard.Entities)
				shards[shard.Shard] = shard
				for _, id := range shard.Entities {
					homes[id] = name
				}
			}
		}
		if judge != nil && !b.runs() {
			v.Seen = seen(judge.node.State(), name)
			leaves = leaves || v.Seen != seenRemoved
		}
		views = append(views, v)
	}
	return views, func(id string) string {
		if judge == nil {
			return ""
		}
		if homes[id] != "" {
			return homes[id]
		}
		number, err := judge.region.ShardOf(id)
		switch shard, placed := shards[number]; {
		case err != nil:
			return ""
		case !placed, leaves:
			return "moving"
		case shard.Tracked > len(shard.Entities):
			return "starting"
		}
		return "at rest"
	}
}

const seenRemoved = "removed by the others"

// seen describes a branch in the view of another one.
func seen(s *cluster.State, name string) string {
	member, ok := s.Named(name)
	switch {
	case !ok:
		return seenRemoved
	case member.Status == cluster.Up && !s.Reachable(member.Node):
		return "the others cannot reach it"
	case member.Status == cluster.Up:
		return "not noticed by the others yet"
	}
	return "the others are removing it"
}
