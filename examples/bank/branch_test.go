// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/cluster/downing"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/sharding"
	"github.com/refold-io/refold/store"
)

// chain is a bank with branches on an in-memory network, with a fake clock.
type chain struct {
	*testing.T

	store    store.DB
	journal  *unscanned // the journal of the store, for the branches
	network  *inmem.Network
	state    string
	standbys int
	branches map[string]*branch
	log      *lockedBuffer
}

// lockedBuffer is a log that a test can read at any time.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// unscanned is a journal whose IDs a branch must not list: it would be a scan of all accounts.
type unscanned struct {
	journal.Journal
	scans atomic.Int64
}

// Unwrap implements journal.Wrapper.
func (j *unscanned) Unwrap() journal.Journal { return j.Journal }

// PersistenceIDs implements journal.IDLister.
func (j *unscanned) PersistenceIDs(context.Context, string) iter.Seq2[string, error] {
	j.scans.Add(1)
	return func(yield func(string, error) bool) { yield("", errors.New("the branch scans the journal")) }
}

// onBranches runs a test on three branches, once for each place where the coordinator keeps its
// state, with and without standbys. No branch may scan the journal.
func onBranches(t *testing.T, f func(c *chain)) {
	t.Helper()
	for name, c := range map[string]chain{
		"journal":          {state: stateJournal},
		"ddata":            {state: stateDDATA},
		"journal, standby": {state: stateJournal, standbys: 1},
		"ddata, standby":   {state: stateDDATA, standbys: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c.T, c.store, c.network = t, newStore(t, "inmem:"), inmem.NewNetwork(inmem.NetworkConfig{})
				c.journal = &unscanned{Journal: c.store.Journal()}
				c.branches, c.log = map[string]*branch{}, &lockedBuffer{}
				defer c.end()
				for _, name := range branchNames(3) {
					c.open(name)
				}
				f(&c)
			})
		})
	}
}

func (c *chain) end() {
	for name := range c.branches {
		c.crash(name)
	}
	if err := c.store.Close(); err != nil {
		c.Error(err)
	}
	if n := c.journal.scans.Load(); n > 0 {
		c.Errorf("the branches have scanned the journal %d times, want none", n)
	}
	if c.Failed() {
		c.Log(c.log.String())
	}
}

// open opens a branch and waits until it is ready.
func (c *chain) open(name string) {
	c.Helper()
	b := c.start(name, c.state)
	if err := b.node.AwaitUp(c.Context()); err != nil {
		c.Fatal(err)
	}
	if err := b.region.AwaitReady(c.Context()); err != nil {
		c.Fatal(err)
	}
}

// start opens a branch with a store for the coordinator's state.
func (c *chain) start(name, state string) *branch {
	c.Helper()
	self, err := identity.New(name)
	if err != nil {
		c.Fatal(err)
	}
	cfg := branchConfig{
		cluster: "bank", carrier: c.network.Carrier(self), seeds: branchNames(3), state: state, standbys: c.standbys,
		downing: downing.Settings{StableAfter: 5 * time.Second, DownAllWhenUnstable: -1},
		logger:  slog.New(slog.NewTextHandler(c.log, nil)),
	}
	b, err := openBranch(c.Context(), cfg, store.Of(c.journal, c.store.Snapshots()), parseRates(c.T, testRates))
	if err != nil {
		c.Fatal(err)
	}
	c.branches[name] = b
	return b
}

// crash ends a branch without a leave.
func (c *chain) crash(name string) {
	c.Helper()
	b := c.branches[name]
	delete(c.branches, name)
	b.node.Stop()
	if err := b.close(); err != nil {
		c.Errorf("close of %s: %v", name, err)
	}
}

// leave shuts a branch down.
func (c *chain) leave(name string) {
	c.Helper()
	b := c.branches[name]
	delete(c.branches, name)
	if err := b.shutdown(c.Context()); err != nil {
		c.Errorf("shutdown of %s: %v", name, err)
	}
}

// post calls the API of a branch and requires a status.
func (c *chain) post(name, path string, want int, body string, args ...any) string {
	c.Helper()
	r := httptest.NewRequestWithContext(c.Context(), http.MethodPost, path, strings.NewReader(fmt.Sprintf(body, args...)))
	r.Header.Set("Content-Type", "application/json")
	return c.send(name, r, want)
}

// get reads from the API of a branch and requires status 200.
func (c *chain) get(name, path string) string {
	c.Helper()
	return c.send(name, httptest.NewRequestWithContext(c.Context(), http.MethodGet, path, nil), http.StatusOK)
}

func (c *chain) send(name string, r *http.Request, want int) string {
	c.Helper()
	w := httptest.NewRecorder()
	c.branches[name].api().ServeHTTP(w, r)
	if w.Code != want {
		c.Fatalf("%s: %s %s: %d %s, want %d", name, r.Method, r.URL, w.Code, w.Body, want)
	}
	return w.Body.String()
}

// home returns the branch that hosts an account, according to another branch.
func (c *chain) home(asked, id string) string {
	c.Helper()
	region := c.branches[asked].region
	shard, err := region.ShardOf(id)
	if err != nil {
		c.Fatal(err)
	}
	home, known, err := region.Home(c.Context(), shard)
	if err != nil || !known {
		c.Fatalf("%s does not return the home of %s: error %v", asked, id, err)
	}
	return home.Name
}

// until waits until a lookup at a branch contains a text.
func (c *chain) until(name, id, subject string) {
	c.Helper()
	r := httptest.NewRequestWithContext(c.Context(), http.MethodGet, "/accounts/"+id, nil)
	var last string
	for range 300 {
		w := httptest.NewRecorder()
		c.branches[name].api().ServeHTTP(w, r)
		if last = w.Body.String(); w.Code == http.StatusOK && strings.Contains(last, subject) {
			return
		}
		time.Sleep(time.Second) // advances the clock of the synctest bubble
	}
	c.Fatalf("timed out: %s does not show %s of %s, but %s", name, subject, id, last)
}

// awaitShards waits until a branch hosts shards.
func (c *chain) awaitShards(name string) {
	c.Helper()
	for range 300 {
		if state, err := c.branches[name].region.State(c.Context()); err == nil && len(state.Shards) > 0 {
			return
		}
		time.Sleep(time.Second) // advances the clock of the synctest bubble
	}
	c.Fatalf("timed out: %s hosts no shards", name)
}

func (c *chain) audit(name string) *auditReport {
	c.Helper()
	auditor := *c.branches[name].bank
	auditor.journal = c.store.Journal() // the audit lists the accounts
	return audited(c.T, &auditor)
}

// openAccounts opens accounts with 100 dollars each, by the branches in turn.
func (c *chain) openAccounts(n int) {
	c.Helper()
	for i := range n {
		name := branchNames(3)[i%3]
		c.post(name, "/accounts", http.StatusOK, `{"id": %q, "currency": "USD", "owner": "Ada"}`, id(i))
		c.post(name, "/accounts/"+id(i)+"/deposits", http.StatusOK, `{"amount": "100", "currency": "USD", "request_id": "first"}`)
	}
}

// The same calls to each branch reach the same accounts, and a transfer between accounts on
// different branches arrives.
func TestBranches(t *testing.T) {
	t.Parallel()
	onBranches(t, func(c *chain) {
		const n = 12
		c.openAccounts(n)
		homes, across := map[string]int{}, 0
		for i := range n {
			for _, name := range branchNames(3) {
				if got := c.get(name, "/accounts/"+id(i)); !strings.Contains(got, `"balance":"100.00"`) {
					c.Errorf("%s: account %s, want the balance 100.00", name, got)
				}
				// Each branch returns the first reply.
				c.post(name, "/accounts/"+id(i)+"/deposits", http.StatusOK, `{"amount": "100", "currency": "USD", "request_id": "first"}`)
				c.post(name, "/accounts/"+id(i)+"/deposits", http.StatusConflict, `{"amount": "9", "currency": "USD", "request_id": "first"}`)
			}
			homes[c.home("branch-1", id(i))]++
		}
		if len(homes) != 3 {
			c.Errorf("accounts by branch: %v, want accounts on 3 branches", homes)
		}
		for i := range n {
			from, to := id(i), id((i+1)%n)
			if c.home("branch-1", from) != c.home("branch-1", to) {
				across++
			}
			got := c.post(branchNames(3)[i%3], "/accounts/"+from+"/transfers", http.StatusOK, `{"amount": "7", "currency": "USD", "to": %q}`, to)
			if !strings.Contains(got, `"transfer":1`) {
				c.Error(got)
			}
		}
		if across == 0 {
			c.Error("0 transfers went to another branch, want at least 1")
		}
		for i := range n { // the destinations do not exist, so the transfers are refunded
			c.post("branch-2", "/accounts/"+id(i)+"/transfers", http.StatusOK, `{"amount": "7", "currency": "USD", "to": %q}`, "nobody-"+id(i))
		}
		for i := range n {
			c.until("branch-3", id(i), `"balance":"100.00","currency":"USD","in_flight":"0.00","pending":[]`)
		}
		if id := coordinatorHistory(c); (id != "") != (c.state == stateJournal) {
			c.Errorf("with the state in %s, the journal has the coordinator history %q; want one only with %s", c.state, id, stateJournal)
		}
		if r := c.audit("branch-2"); r.completed != n || r.refunded != n || r.accounts != n {
			c.Errorf("the audit found %d accounts, %d transfers completed, %d refunded; want %d of each", r.accounts, r.completed, r.refunded, n)
		}
		if got := c.get("branch-1", "/branch"); strings.Count(got, `"status":"up","reachable":true`) != 3 || strings.Contains(got, `"shards":0`) {
			c.Error(got)
		}
		c.get("branch-1", "/ready")
	})
}

// coordinatorHistory returns the persistence ID of the coordinator, or "" if the journal has none.
func coordinatorHistory(c *chain) string {
	c.Helper()
	lister, _ := journal.As[journal.IDLister](c.store.Journal())
	for id, err := range lister.PersistenceIDs(c.Context(), "") {
		if err != nil {
			c.Fatal(err)
		}
		if strings.HasPrefix(id, sharding.JournalPrefix+"coordinator|") {
			return id
		}
	}
	return ""
}

// After a branch has crashed or left, the others host its accounts. Pending transfers complete
// without a further command to their source.
func TestBranchEnds(t *testing.T) {
	t.Parallel()
	for how, end := range map[string]func(*chain, string){"crash": (*chain).crash, "leave": (*chain).leave} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			onBranches(t, func(c *chain) {
				const n = 12
				c.openAccounts(n)
				c.network.Inject(inmem.Fault{Delay: 50 * time.Millisecond}) // keeps some transfers in flight when a branch ends
				for i := range n {
					c.get("branch-1", "/accounts/"+id(i))
				}
				for _, gone := range []string{"branch-1", "branch-3"} { // branch-1 is the oldest and runs the coordinator
					asked := "branch-2"
					for i := range n {
						c.post(gone, "/accounts/"+id(i)+"/transfers", http.StatusOK, `{"amount": "3", "currency": "USD", "to": %q}`, id((i+1)%n))
					}
					end(c, gone)
					if r := c.audit(asked); how == "crash" && r.inFlight+r.unconfirmed == 0 {
						c.Errorf("no transfer was in flight after the crash of %s, want at least 1", gone)
					}
					c.awaitNothingInFlight(asked)
					for i := range n {
						c.until(asked, id(i), `"balance":"100.00"`)
						if home := c.home(asked, id(i)); home == gone {
							c.Errorf("account %s is on %s, which has ended", id(i), home)
						}
					}
				}
				if r := c.audit("branch-2"); r.completed != 2*n || r.accounts != n {
					c.Errorf("the audit found %d accounts, %d transfers completed; want %d and %d", r.accounts, r.completed, n, 2*n)
				}
				c.open("branch-1") // branch-1 joins again
				c.until("branch-1", id(0), `"balance":"100.00"`)
			})
		})
	}
}

// awaitNothingInFlight waits until the journal contains no pending transfer. It asks no account.
func (c *chain) awaitNothingInFlight(name string) {
	c.Helper()
	for range 300 {
		report := c.audit(name)
		if report.inFlight+report.unconfirmed == 0 {
			return
		}
		time.Sleep(time.Second) // advances the clock of the synctest bubble
	}
	c.Fatal("timed out: some transfers are still in flight")
}

// An event that another instance stores while an account has a pending transfer restarts the account. The
// account continues the transfer without a command, and its next reply includes the event.
func TestConflictingAccount(t *testing.T) {
	t.Parallel()
	onBranches(t, func(c *chain) {
		const n = 12
		c.openAccounts(n)
		at := map[string]string{} // an account of each branch
		for i := range n {
			c.get("branch-1", "/accounts/"+id(i)) // branch-1 requests the home of the account
			at[c.home("branch-1", id(i))] = id(i)
		}
		from, to := at["branch-1"], at["branch-3"]
		resume := c.network.Pause("branch-3") // keeps the transfer pending
		c.post("branch-1", "/accounts/"+from+"/transfers", http.StatusOK, `{"amount": "3", "currency": "USD", "to": %q}`, to)
		c.storeElsewhere(from, Deposited{cause("elsewhere"), plain(usd("7"))})
		c.post("branch-1", "/accounts/"+from+"/deposits", http.StatusServiceUnavailable, `{"amount": "5", "currency": "USD", "request_id": "second"}`)
		if got := strings.Count(c.log.String(), "directive=restart"); got != 1 {
			c.Errorf("%d accounts were restarted, want 1", got)
		}
		resume()
		c.awaitNothingInFlight("branch-1")
		if r := c.audit("branch-1"); r.completed != 1 {
			c.Errorf("%d transfers completed, want 1", r.completed)
		}
		c.post("branch-2", "/accounts/"+from+"/deposits", http.StatusOK, `{"amount": "5", "currency": "USD", "request_id": "second"}`)
		c.until("branch-3", from, `"balance":"109.00"`)
		c.until("branch-3", to, `"balance":"103.00"`)
	})
}

// storeElsewhere stores an event of an account as another instance of the account would.
func (c *chain) storeElsewhere(id string, event Event) {
	c.Helper()
	pid := journal.JoinID(AccountTypeName, id)
	last, err := c.store.Journal().HighestSequenceNr(c.Context(), pid)
	if err != nil {
		c.Fatal(err)
	}
	record := journal.Event{SequenceNr: last + 1, Time: time.Now().UTC()}
	if record.Manifest, record.Payload, err = AccountType(nil).Events.Encode(event); err != nil {
		c.Fatal(err)
	}
	if errs := c.store.Journal().Append(c.Context(), []journal.Write{{ID: pid, Writer: "elsewhere", Expect: last, Events: []journal.Event{record}}}); errs != nil {
		c.Fatal(errs)
	}
}

// The supervisor of a branch decides by the kind of the failure.
func TestSupervisorOfBranch(t *testing.T) {
	t.Parallel()
	b := &branch{logger: slog.New(slog.DiscardHandler)}
	for cause, want := range map[error]eventsourcing.Directive{
		fmt.Errorf("handle: %w", &eventsourcing.PanicError{}): eventsourcing.Resume,
		eventsourcing.ErrConflict:                             eventsourcing.Restart,
		eventsourcing.ErrRejected:                             eventsourcing.Restart,
	} {
		if got := b.supervise(cause); got != want {
			t.Errorf("directive after %v: %d, want %d", cause, got, want)
		}
	}
}

// While a branch is paused and not yet unreachable, new shards are allocated within two seconds.
func TestPausedBranch(t *testing.T) {
	t.Parallel()
	onBranches(t, func(c *chain) {
		c.openAccounts(3)
		resume := c.network.Pause("branch-3") // branch-1 runs the coordinator
		defer resume()
		region := c.branches["branch-2"].region
		for i := 100; i < 110; i++ {
			if err := eventsourcing.Tell(c.Context(), region.Ref(id(i)), Lookup{}); err != nil {
				c.Fatal(err)
			}
			shard, err := region.ShardOf(id(i))
			if err != nil {
				c.Fatal(err)
			}
			began := time.Now()
			for known := false; !known; {
				time.Sleep(10 * time.Millisecond) // advances the clock of the synctest bubble
				if _, known, err = region.Home(c.Context(), shard); err != nil || time.Since(began) > 2*time.Second {
					c.Fatalf("shard %d has no home after %v, want one within 2s: error %v", shard, time.Since(began), err)
				}
			}
		}
	})
}

// A branch with another store of the coordinator's state does not become ready, and reports why.
func TestBranchWithOtherStore(t *testing.T) {
	t.Parallel()
	onBranches(t, func(c *chain) {
		others := map[string]string{stateJournal: stateDDATA, stateDDATA: stateJournal}
		b := c.start("branch-4", others[c.state])
		if err := b.node.AwaitUp(c.Context()); err != nil {
			c.Fatal(err)
		}
		time.Sleep(time.Minute) // advances the clock of the synctest bubble
		w := httptest.NewRecorder()
		b.api().ServeHTTP(w, httptest.NewRequestWithContext(c.Context(), http.MethodGet, "/ready", nil))
		if w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "Options.State is ") {
			c.Errorf("/ready of a branch with another store: %d %s; want 503 and the field Options.State", w.Code, w.Body)
		}
		c.get("branch-1", "/ready")
	})
}

// A branch that starts again gets shards, also if no account is used.
func TestRestartedBranchHostsShards(t *testing.T) {
	t.Parallel()
	onBranches(t, func(c *chain) {
		c.openAccounts(30)
		time.Sleep(time.Hour) // advances the clock of the synctest bubble
		c.crash("branch-2")
		c.until("branch-3", id(0), `"status":"open"`)
		c.open("branch-2")
		c.awaitShards("branch-2")
	})
}
