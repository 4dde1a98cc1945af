// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package features_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/console"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/internal/testkit/natstest"
	"github.com/refold-io/refold/internal/testkit/pgtest"
	"github.com/refold-io/refold/plugins/nats"
	"github.com/refold-io/refold/plugins/postgres"
	"github.com/refold-io/refold/projection"
	"github.com/refold-io/refold/sharding"
	"github.com/refold-io/refold/sharding/allocation"
	"github.com/refold-io/refold/transport"
)

// A ledger counts its credits. The reply is the node.
type (
	ledger struct {
		Total int
		IBAN  string
	}
	credited struct {
		Amount int
		IBAN   string
	}
	credit struct {
		eventsourcing.Command[ledger, string]
		Amount int
		IBAN   string
	}
)

const secretIBAN = "DE89370400440532013000"

func ledgerType(node string) eventsourcing.Type[ledger, credited] {
	return eventsourcing.Type[ledger, credited]{
		Name: "ledger", Events: codec.Types(codec.Name[credited]("credited")),
		Apply: func(l *ledger, e credited) { l.Total, l.IBAN = l.Total+e.Amount, e.IBAN },
		Commands: eventsourcing.Commands(eventsourcing.On("credit", func(_ *ledger, c *eventsourcing.Context[ledger, credited, string], m credit) eventsourcing.Decision[ledger, credited, string] {
			return c.Persist(credited{m.Amount, m.IBAN}).Reply(node)
		})),
	}
}

// observed consists of three nodes with agents that share PostgreSQL. They talk over a NATS server that
// separates the rights of the operators "reader" and "actor". A projection runs on node-1.
type observed struct {
	*fleet

	region  *sharding.Region[ledger] // of node-0
	credits *projection.Projection[credited]
}

func observe(t *testing.T) *observed {
	t.Helper()
	users, err := natstest.Nodes("features", "node-0", "node-1", "node-2")
	if err != nil {
		t.Fatal(err)
	}
	for name, right := range map[string]transport.AdminRight{"reader": transport.AdminRead, "actor": transport.AdminAct} {
		p, failed := nats.OperatorPermissions("features", name, right, "*")
		if failed != nil {
			t.Fatal(failed)
		}
		users = append(users, natstest.User{Name: name, Permissions: p})
	}
	broker := natstest.Start(t, natstest.Config{Users: users})
	db, err := postgres.Open(t.Context(), pgtest.DSN(t), postgres.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if closed := db.Close(); closed != nil {
			t.Error(closed)
		}
	})
	o := &observed{fleet: &fleet{tb: t, db: db, access: func(name string) nats.Access { return broker.Access(t, name) }}}
	if o.credits, err = projection.New(projection.Config[credited]{
		Name: "credits", Journal: db.Journal(), Events: ledgerType("").Events,
		Handler: projection.AtLeastOnce[credited]{Store: &projection.Memory{}, Handle: func(context.Context, projection.Envelope[credited]) error { return nil }},
	}); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		o.add(nil)
		o.host(i)
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = o.credits.Run(ctx) }) // the error is that of ctx
	t.Cleanup(func() { stop(); running.Wait() })
	return o
}

// host starts the region and the agent of a node.
func (o *observed) host(i int) {
	o.tb.Helper()
	ctx, node := within(o.tb), o.nodes[i]
	region, err := sharding.Host(ctx, node, o.runtimes[i], ledgerType(node.Self().Name), sharding.Options{
		Shards: 6, Strategy: sharding.Pure(allocation.ByLoad{}), Tuning: sharding.Tuning{RebalanceInterval: time.Second},
	})
	if err == nil {
		err = region.AwaitReady(ctx)
	}
	if err != nil {
		o.tb.Fatal(err)
	}
	cfg := console.AgentConfig{
		Runtime: o.runtimes[i], Types: []console.Type{console.TypeOf(ledgerType(""))}, Node: node, AllowActions: true,
		Redact: func(f console.Field) bool { return slices.Contains(f.Path, "IBAN") },
	}
	if o.region = region; i == 1 {
		cfg.Projections = []console.Projection{o.credits}
	}
	agent, err := console.NewAgent(cfg)
	if err != nil {
		o.tb.Fatal(err)
	}
	o.tb.Cleanup(func() {
		if closed := agent.Close(); closed != nil {
			o.tb.Error(closed)
		}
	})
}

func (o *observed) operator(name string) *nats.Operator {
	o.tb.Helper()
	op, err := nats.ConnectOperator(nats.OperatorConfig{Access: o.access(name), Cluster: "features", Name: name})
	if err != nil {
		o.tb.Fatal(err)
	}
	o.tb.Cleanup(func() { _ = op.Close() })
	return op
}

// browse opens a console with the rights of an operator.
func (o *observed) browse(op *nats.Operator) http.Handler {
	o.tb.Helper()
	c, err := console.New(console.Options{Admin: op, AllowActions: true, Interval: 100 * time.Millisecond, Authorize: func(*http.Request, string) (string, error) { return "ann", nil }})
	if err != nil {
		o.tb.Fatal(err)
	}
	o.tb.Cleanup(c.Close)
	return c
}

// send sends a request of a browser and returns the page.
func (o *observed) send(c http.Handler, method, path string, form url.Values) (page string, status int) {
	r := httptest.NewRequestWithContext(o.tb.Context(), method, "http://localhost"+path, strings.NewReader(form.Encode()))
	r.Header.Set("Origin", "http://localhost")
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := httptest.NewRecorder()
	c.ServeHTTP(w, r)
	return w.Body.String(), w.Code
}

// until loads a page until it matches all patterns, because nodes receive changes at different times.
func (o *observed) until(c http.Handler, path string, patterns ...string) (page string) {
	o.tb.Helper()
	for ctx := within(o.tb); ctx.Err() == nil; {
		page, _ = o.send(c, http.MethodGet, path, nil)
		if !slices.ContainsFunc(patterns, func(p string) bool { return !regexp.MustCompile(p).MatchString(page) }) {
			return page
		}
	}
	o.tb.Fatalf("the page %s does not match all of %q: %s", path, patterns, page)
	return page
}

// A console over NATS shows entities that are in the memory of any node, without the fields that the
// node replaces, and projections, processes, singletons and shards of all nodes.
func TestConsoleShowsThreeNodes(t *testing.T) {
	t.Parallel()
	o := observe(t)
	ctx, home := within(t), ""
	for _, amount := range []int{10, 20, 30} {
		var err error
		if home, err = eventsourcing.Ask(ctx, o.region.Ref("7"), credit{Amount: amount, IBAN: secretIBAN}); err != nil {
			t.Fatal(err)
		}
	}
	shard, err := o.region.ShardOf("7")
	if err != nil {
		t.Fatal(err)
	}
	reader := o.operator("reader")
	c := o.browse(reader)

	page := o.until(c, "/entities/ledger%7C7?at=2", `data-nr="3"`, `data-nr="1"`, `State after event <span id="state-at">2<`, `in memory on `+home, `\(redacted\)`)
	text := strings.Join(strings.Fields(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(page, " ")), " ")
	for _, want := range []string{"Changed by event 2", "Total 10 30"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page of the entity has no %q: %s", want, text)
		}
	}
	o.until(c, "/entities/ledger%7C7/live?node="+home, `The state in memory is the state that the events give`, `on `+home)
	raw, err := reader.Ask(ctx, "inspect", transport.AdminRead, "node-2", []byte(`{"service":"inspect","command":"events","events":{"id":"ledger|7"}}`))
	if err != nil || strings.Contains(page+string(raw), secretIBAN) || !strings.Contains(string(raw), "(redacted)") {
		t.Errorf("the reply of node-2 is %s, %v, want redacted events", raw, err)
	}

	o.until(c, "/projections", `data-projection="credits"`, `<dt>Handled</dt><dd>3<`, `<td>node-1</td>`)
	o.until(c, "/nodes", `(?s)(title="go1\..*){3}`, `data-singleton="sharding\|ledger" data-node="node-0"`)
	o.until(c, "/shards?by=load", fmt.Sprintf(`data-shard="%d" data-node="%s"[^>]* commands per second"`, shard, home), `(?s)(class="host" data-node="node-.*){3}`)
}

// The rights of an operator on the NATS server decide about actions, also if the console permits them.
func TestConsoleActsWithPermission(t *testing.T) {
	t.Parallel()
	o := observe(t)
	reads, acts := o.browse(o.operator("reader")), o.browse(o.operator("actor"))
	post := func(c http.Handler, action string, target url.Values) (page string, status int) {
		t.Helper()
		target.Set("action", action)
		return o.send(c, http.MethodPost, "/act", target)
	}
	credits, drain := url.Values{"projection": {"credits"}}, url.Values{"node": {"node-2"}, "type": {"ledger"}}
	o.until(reads, "/projections", `data-projection="credits"`)
	for action, target := range map[string]url.Values{"projection.pause": credits, "sharding.drain": drain} {
		if page, status := post(reads, action, target); status != http.StatusBadGateway || !strings.Contains(page, "not permitted") {
			t.Errorf("%s with the right to read: %d, %s; want a refused request", action, status, page)
		}
	}
	if o.credits.Paused() {
		t.Error("the operator with the right to read has paused the projection")
	}
	if page := o.until(reads, "/shards", `id="host-node-2"`); regexp.MustCompile(`drain(ed|ing)</span>`).MatchString(page) {
		t.Error("the operator with the right to read has drained node-2")
	}

	o.until(acts, "/projections", `data-projection="credits"`)
	if page, status := post(acts, "projection.pause", credits); status != http.StatusOK || !o.credits.Paused() {
		t.Errorf("pause with the right to act: %d, %s; want a paused projection", status, page)
	}
	o.until(reads, "/projections", `data-paused="true"`)
	if page, status := post(acts, "projection.resume", credits); status != http.StatusOK || o.credits.Paused() {
		t.Errorf("resume with the right to act: %d, %s; want a projection that continues", status, page)
	}
	if page, status := post(acts, "sharding.drain", drain); status != http.StatusOK {
		t.Errorf("drain with the right to act: %d, %s; want 200", status, page)
	}
	o.until(reads, "/shards", `(?s)id="host-node-2".*drained</span>`)
}
