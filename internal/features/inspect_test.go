// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package features_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/inspect"
	"github.com/refold-io/refold/internal/testkit/natstest"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/plugins/nats"
	"github.com/refold-io/refold/projection"
	"github.com/refold-io/refold/store"
	"github.com/refold-io/refold/transport"
)

// States, differences and events are the same on all databases.
func TestInspectEntity(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, db store.DB) {
		t.Helper()
		rt := openRuntime(t, db)
		counters, err := eventsourcing.Host(rt, inspectedType())
		if err != nil {
			t.Fatal(err)
		}
		for i := range 600 {
			if _, err = eventsourcing.Ask(t.Context(), counters.Ref("1"), increase{By: i}); err != nil {
				t.Fatal(err)
			}
		}
		server, err := inspect.NewServer(inspect.Config{Runtime: rt, Types: []inspect.Type{inspect.TypeOf(inspectedType())}})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = server.Close(t.Context()) }()
		client := inspect.NewClient(server.AdminClient())
		for _, at := range []uint64{600, 300, 301} {
			s, failed := client.State(t.Context(), "", inspect.StateQuery{ID: "counter|1", At: at})
			if want := int(at-1) * int(at) / 2; failed != nil || decodedTotal(t, s.JSON) != want {
				t.Errorf("the state at %d: %v, %v; want the total %d", at, s, failed, want)
			}
		}
		d, err := client.Difference(t.Context(), "", inspect.DifferenceQuery{ID: "counter|1", From: 99, To: 100})
		if err != nil || len(d.Changes) != 1 || string(d.Changes[0].Before) != "4851" || string(d.Changes[0].After) != "4950" {
			t.Errorf("the difference of event 100: %+v, %v; want 4851 and 4950", d, err)
		}
		p, err := client.Events(t.Context(), "", inspect.EventQuery{ID: "counter|1", Backward: true, Limit: 2})
		if err != nil || len(p.Events) != 2 || p.Events[0].Nr != 600 || string(p.Events[1].JSON) != `{"By":598}` || p.Next != 598 {
			t.Errorf("the last events: %+v, %v; want 600 and 599", p, err)
		}
		l, err := client.Live(t.Context(), "", "counter|1")
		if err != nil || l.Presence != "running" || !l.Difference.Equal {
			t.Errorf("the state in memory: %+v, %v; want an equal one", l, err)
		}
		ids, err := client.IDs(t.Context(), "", inspect.IDQuery{Type: "counter"})
		if err != nil || len(ids.IDs) != 1 || ids.IDs[0].Highest != 600 {
			t.Errorf("the IDs: %+v, %v; want counter|1", ids, err)
		}
	})
}

func decodedTotal(t *testing.T, state []byte) int {
	t.Helper()
	var s struct{ Total int }
	if err := json.Unmarshal(state, &s); err != nil {
		t.Fatal(err)
	}
	return s.Total
}

type (
	inspected struct{ Total int }
	increased struct{ By int }
	increase  struct {
		eventsourcing.Command[inspected, int]
		By int
	}
)

func inspectedType() eventsourcing.Type[inspected, increased] {
	return eventsourcing.Type[inspected, increased]{
		Name: "counter", Events: codec.Types(codec.Name[increased]("increased")), Apply: func(s *inspected, e increased) { s.Total += e.By },
		Commands: eventsourcing.Commands(eventsourcing.On("increase", func(s *inspected, c *eventsourcing.Context[inspected, increased, int], m increase) eventsourcing.Decision[inspected, increased, int] {
			return c.Persist(increased(struct{ By int }{m.By})).ReplyFunc(func() int { return s.Total })
		})),
	}
}

// The permissions of NATS users separate reading from acting, and the service inspect from the others.
// Config.Authorize sees the service and the command.
func TestOperatorRightsByService(t *testing.T) {
	t.Parallel()
	grant := func(name string, right transport.AdminRight, services ...string) natstest.User {
		p, err := nats.OperatorPermissions("bank", name, right, services...)
		if err != nil {
			t.Fatal(err)
		}
		return natstest.User{Name: name, Permissions: p}
	}
	own, err := nats.NodePermissions("bank", "a")
	if err != nil {
		t.Fatal(err)
	}
	broker := natstest.Start(t, natstest.Config{Users: []natstest.User{
		{Name: "a", Permissions: own},
		grant("reader", transport.AdminRead, "inspect", "projection"), grant("dashboard", transport.AdminAct), grant("actor", transport.AdminAct, "*"),
	}})
	self, err := identity.New("a")
	if err != nil {
		t.Fatal(err)
	}
	carrier, err := nats.Connect(nats.Config{Access: broker.Access(t, "a"), Cluster: "bank", Self: self})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	authorized := map[string]bool{}
	node, err := cluster.Join(t.Context(), cluster.Config{Cluster: "bank", Carrier: carrier, Seeds: []string{"a"}, Logger: quiet(), Authorize: func(_ context.Context, r cluster.OperatorRequest) error {
		mu.Lock()
		defer mu.Unlock()
		authorized[r.Operator+" "+r.Service+" "+r.Command] = true
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { node.Stop(); <-node.Done() })
	if err = node.AwaitUp(within(t)); err != nil {
		t.Fatal(err)
	}
	db, err := inmem.Open()
	if err != nil {
		t.Fatal(err)
	}
	p, err := projection.New(projection.Config[increased]{
		Name: "totals", Journal: db.Journal(), Events: inspectedType().Events,
		Handler: projection.AtLeastOnce[increased]{Store: &projection.Memory{}, Handle: func(context.Context, projection.Envelope[increased]) error { return nil }},
	})
	if err != nil {
		t.Fatal(err)
	}
	rt := openRuntime(t, db)
	counters, err := eventsourcing.Host(rt, inspectedType())
	if err != nil {
		t.Fatal(err)
	}
	if _, err = eventsourcing.Ask(t.Context(), counters.Ref("1"), increase{By: 7}); err != nil {
		t.Fatal(err)
	}
	server, err := inspect.NewServer(inspect.Config{Runtime: rt, Types: []inspect.Type{inspect.TypeOf(inspectedType())}, Projections: []inspect.Projection{p}, AllowActions: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close(context.WithoutCancel(t.Context())) })
	server.Register(node)

	connect := func(name string) *nats.Operator {
		o, failed := nats.ConnectOperator(nats.OperatorConfig{Access: broker.Access(t, name), Cluster: "bank", Name: name})
		if failed != nil {
			t.Fatal(failed)
		}
		t.Cleanup(func() { _ = o.Close() })
		return o
	}
	reader, dashboard, actor := connect("reader"), connect("dashboard"), connect("actor")
	events := func(o transport.AdminClient) error {
		page, failed := inspect.NewClient(o).Events(within(t), "a", inspect.EventQuery{ID: "counter|1"})
		if failed == nil && (len(page.Events) != 1 || string(page.Events[0].JSON) != `{"By":7}`) {
			t.Errorf("the events are %+v", page.Events)
		}
		return failed
	}
	pause := func(o transport.AdminClient) error {
		_, failed := inspect.NewClient(o).PauseProjection(within(t), "a", "totals")
		return failed
	}
	forged := func(service string, right transport.AdminRight) func(o transport.AdminClient) error {
		return func(o transport.AdminClient) error {
			answer, failed := o.Ask(within(t), service, right, "a", []byte(`{"service":"inspect","command":"events","events":{"id":"counter|1"}}`))
			if strings.Contains(string(answer), `"denied":true`) {
				return transport.ErrDenied
			}
			return failed
		}
	}
	for _, c := range []struct {
		name    string
		ask     func(transport.AdminClient) error
		client  transport.AdminClient
		allowed bool
	}{
		{"the reader reads events", events, reader, true},
		{"the reader pauses a projection", pause, reader, false},
		{"the dashboard reads events", events, dashboard, false},
		{"the dashboard reads events through another service", forged("cluster", transport.AdminRead), dashboard, false},
		{"the reader reads events with the right to act", forged("inspect", transport.AdminAct), reader, false},
		{"the actor reads events", events, actor, true},
		{"the actor reads events with the right to act", forged("inspect", transport.AdminAct), actor, false},
		{"the dashboard reads the members", func(o transport.AdminClient) error {
			_, failed := cluster.NewAdmin(o).State(within(t), "a")
			return failed
		}, dashboard, true},
	} {
		if failed := c.ask(c.client); c.allowed && failed != nil || !c.allowed && !errors.Is(failed, transport.ErrDenied) {
			t.Errorf("%s: %v; allowed: %v", c.name, failed, c.allowed)
		}
	}
	if p.Paused() {
		t.Error("a request that was denied paused the projection")
	}
	if failed := pause(actor); failed != nil || !p.Paused() {
		t.Errorf("the pause of the actor: %v, want a paused projection", failed)
	}
	// In the process, the services of the node are reached without a network.
	if s, failed := cluster.NewAdmin(server.AdminClient()).State(within(t), ""); failed != nil || len(s.Members) != 1 {
		t.Errorf("the members in the process: %+v, %v; want one", s, failed)
	}
	mu.Lock()
	defer mu.Unlock()
	for _, want := range []string{"reader inspect events", "actor projection pause", "dashboard cluster state", "local cluster state"} {
		if !authorized[want] {
			t.Errorf("Authorize did not receive %q: %v", want, authorized)
		}
	}
	if authorized["dashboard inspect events"] || authorized["reader projection pause"] {
		t.Errorf("Authorize received a denied request: %v", authorized)
	}
}
