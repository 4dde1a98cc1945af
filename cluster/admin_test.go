// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/transport"
)

func TestAdminState(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		nodes := w.clusterWith(func(c *cluster.Config) { c.Roles, c.Version = []string{"teller"}, "1.2" }, "a", "b", "c")
		admin := cluster.NewAdmin(w.network.Operator("root"))
		w.until(nodes[1], func(s *cluster.State) bool { return len(s.Seen) == 3 })
		s, err := admin.State(w.Context(), "b")
		must(w.T, err)
		if s.Cluster != "bank" || s.Self != nodes[1].Self().String() || s.Leader != nodes[0].Self().String() || s.Strategy != "keep-majority" || !s.Connected ||
			!s.Converged || s.RoleLeaders["teller"] != s.Leader || len(s.Members) != 3 {
			w.Errorf("state of b: %+v, want 3 converged members and a as the leader of role teller", s)
		}
		if m := s.Members[2]; m.Node != nodes[2].Self().String() || m.Status != "up" || m.Version != "1.2" || m.UpNumber == 0 || m.Unreachable || !m.Seen {
			w.Errorf("member c in the state of b: %+v, want up, version 1.2, reachable and seen", m)
		}
		heal := w.network.Partition([]string{"c"}, []string{"a", "b"})
		w.until(nodes[1], func(s *cluster.State) bool { return len(s.Unreachable) == 1 })
		s, err = admin.State(w.Context(), "b")
		must(w.T, err)
		if m := s.Members[2]; !m.Unreachable || len(m.UnreachableTo) == 0 || m.Terminated {
			w.Errorf("disconnected member c in the state of b: %+v, want unreachable with observers, not terminated", m)
		}
		heal()
		w.allUp(nodes...)
	})
}

func TestAdminCommands(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		nodes := w.cluster("a", "b", "c", "d")
		admin := cluster.NewAdmin(w.network.Operator("root"))
		must(w.T, admin.Leave(w.Context(), "", "c"))
		w.wantEnded(nodes[2], cluster.ErrLeft)
		must(w.T, admin.Down(w.Context(), "a", nodes[1].Self().String()))
		w.wantEnded(nodes[1], cluster.ErrDowned)
		w.allUp(nodes[0], nodes[3])
		if err := admin.Leave(w.Context(), "", "c"); !errors.Is(err, cluster.ErrNotMember) || !strings.Contains(err.Error(), "leave") {
			w.Errorf("Leave of an unknown node: %v, want ErrNotMember", err)
		}
		if err := admin.Down(w.Context(), "", "no name"); err == nil || errors.Is(err, cluster.ErrNotMember) {
			w.Errorf("Down with an invalid name: %v, want an error other than ErrNotMember", err)
		}
		if _, err := admin.State(w.Context(), "x"); !errors.Is(err, transport.ErrNoNode) {
			w.Errorf("State of an unknown node: %v, want ErrNoNode", err)
		}
		must(w.T, admin.PrepareForShutdown(w.Context(), ""))
		w.until(nodes[0], func(s *cluster.State) bool { return s.Status(nodes[0].Self()) == cluster.ReadyForShutdown })
	})
}

// The nodes report the singletons in which they take part, and the node that runs each.
func TestAdminSingletons(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		nodes := []*cluster.Node{w.start("a"), nil, nil}
		w.allUp(nodes[0])
		for i, name := range []string{"b", "c"} {
			nodes[i+1] = w.start(name, func(c *cluster.Config) { c.Roles = []string{"teller"} })
			w.allUp(nodes[:i+2]...)
		}
		admin, names := cluster.NewAdmin(w.network.Operator("root")), []string{"a", "b", "c"}
		if all, err := admin.Singletons(w.Context(), names); err != nil || len(all) != 0 {
			w.Errorf("Singletons = %+v, %v, want none", all, err)
		}
		began := time.Now()
		run := func(ctx context.Context, _ *cluster.Inbox) error { <-ctx.Done(); return nil }
		over := func(context.Context, *cluster.Inbox) error { return nil }
		for i, n := range nodes {
			must(w.T, n.Singleton(w.Context(), cluster.Singleton{Name: "clock", Run: run}))
			must(w.T, n.Singleton(w.Context(), cluster.Singleton{Name: "over", Run: over}))
			if i > 0 {
				must(w.T, n.Singleton(w.Context(), cluster.Singleton{Name: "vault", Role: "teller", Run: run}))
			}
		}
		w.sleep(time.Minute)
		want := []cluster.SingletonStatus{
			{Name: "clock", Node: "a", Since: began, States: map[string]string{"a": "oldest", "b": "younger", "c": "younger"}},
			{Name: "over", States: map[string]string{"a": "oldest", "b": "younger", "c": "younger"}},
			{Name: "vault", Role: "teller", Node: "b", Since: began, States: map[string]string{"b": "oldest", "c": "younger"}},
		}
		same := func(a, b cluster.SingletonStatus) bool {
			return a.Name == b.Name && a.Role == b.Role && a.Node == b.Node && a.Since.Equal(b.Since) && maps.Equal(a.States, b.States)
		}
		if all, err := admin.Singletons(w.Context(), names); err != nil || !slices.EqualFunc(all, want, same) {
			w.Errorf("Singletons = %+v, %v, want %+v", all, err, want)
		}
		must(w.T, nodes[0].Shutdown(w.Context()))
		w.allUp(nodes[1:]...)
		w.sleep(time.Minute)
		all, err := admin.Singletons(w.Context(), names)
		if !errors.Is(err, transport.ErrNoNode) || len(all) != 3 || all[0].Node != "b" || !all[0].Since.After(began) || len(all[0].States) != 2 {
			w.Errorf("after a has left, Singletons = %+v, %v, want the clock on b, and ErrNoNode for a", all, err)
		}
	})
}

// All pages of singletons are read.
func TestAdminSingletonPages(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		a := w.cluster("a")[0]
		const count = 300
		for i := range count {
			must(w.T, a.Singleton(w.Context(), cluster.Singleton{Name: fmt.Sprintf("%d%s", i, strings.Repeat("x", 250)), Run: func(context.Context, *cluster.Inbox) error { return nil }}))
		}
		w.sleep(time.Second)
		asker := w.network.Operator("root")
		b, err := asker.Ask(w.Context(), "cluster", transport.AdminRead, "a", []byte(`{"command":"singletons"}`))
		if must(w.T, err); len(b) > 300<<10 || !strings.Contains(string(b), `"more":true`) {
			w.Errorf("the first page has %d bytes, want a limited page with a mark", len(b))
		}
		if all, err := cluster.NewAdmin(asker).Singletons(w.Context(), []string{"a"}); err != nil || len(all) != count {
			w.Errorf("Singletons returns %d, %v, want %d", len(all), err, count)
		}
	})
}

// An operator orders nodes without seeds to found and to join a cluster. Until then, such a node
// answers requests to its name only.
func TestAdminJoin(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		w.seeds = nil
		a, b := w.start("a"), w.start("b")
		synctest.Wait()
		admin := cluster.NewAdmin(w.network.Operator("root"))
		if _, err := admin.State(w.Context(), ""); !errors.Is(err, transport.ErrNoNode) {
			w.Errorf("State of any node before the first join: %v, want ErrNoNode", err)
		}
		if s, err := admin.State(w.Context(), "b"); err != nil || s.Self != b.Self().String() || len(s.Members) != 0 {
			w.Errorf("State of b before it joins: %+v, %v, want no members", s, err)
		}
		if err := admin.Leave(w.Context(), "b", "b"); !errors.Is(err, cluster.ErrNotMember) {
			w.Errorf("Leave of b before it joins: %v, want ErrNotMember", err)
		}
		if err := admin.Join(w.Context(), "b", "no name"); err == nil || !strings.Contains(err.Error(), "no name") {
			w.Errorf("Join through an invalid name: %v, want an error with the name", err)
		}
		if err := admin.Join(w.Context(), "", "a"); !errors.Is(err, cluster.ErrInvalid) {
			w.Errorf("Join of any node: %v, want ErrInvalid", err)
		}
		must(w.T, admin.Join(w.Context(), "a", "a"))
		w.allUp(a)
		synctest.Wait()
		if s, err := admin.State(w.Context(), ""); err != nil || s.Self != a.Self().String() {
			w.Errorf("State of any node while only a is a member: %+v, %v, want the state of a", s, err)
		}
		must(w.T, admin.Join(w.Context(), "b", "a"))
		w.allUp(a, b)
		must(w.T, admin.Join(w.Context(), "b", "x")) // has no effect on a member
		w.allUp(a, b)
	})
}

// Requests for the service of another package are passed to its handler.
func TestHandleAdmin(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		a := w.cluster("a")[0]
		a.HandleAdmin("carts", map[string]transport.AdminRight{"list": transport.AdminRead}, func(_ context.Context, operator, _ string, _ transport.AdminRight, request []byte) []byte {
			return append([]byte(operator+" "), request...)
		})
		synctest.Wait()
		request := `{"service":"carts","command":"list","node":[1]}`
		b, err := w.network.Operator("root").Ask(w.Context(), "carts", transport.AdminRead, "a", []byte(request))
		if must(w.T, err); string(b) != "root "+request {
			w.Errorf("the reply of the service is %q, want %q", b, "root "+request)
		}
	})
}

// Every request of an operator receives a reply. The reply to an invalid request contains an error.
func TestInvalidAdminRequests(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		a := w.cluster("a")[0]
		read := map[string]transport.AdminRight{"state": transport.AdminRead}
		a.HandleAdmin("gone", read, func(context.Context, string, string, transport.AdminRight, []byte) []byte { return []byte("wrong") })
		a.HandleAdmin("gone", read, nil)
		synctest.Wait() // operators find a node soon after it has joined
		asker := w.network.Operator("root")
		for _, request := range []string{"", "{", "[]", `{"command":"explode"}`, `{"command":"leave"}`, `{"command":"state","after":"#"}`, `{"service":"gone","command":"state"}`, `{"service":"none"}`, `{"command":"state","command":7}`, `{"command":"down","node":"` + strings.Repeat("x", 9999) + `"}`} {
			service := "cluster"
			for _, name := range []string{"gone", "none"} {
				if strings.Contains(request, name) {
					service = name
				}
			}
			b, err := asker.Ask(w.Context(), service, transport.AdminRead, "a", []byte(request))
			must(w.T, err)
			var answer struct {
				Error     string           `json:"error"`
				NoService bool             `json:"no_service"`
				State     *cluster.Summary `json:"state"`
			}
			if err := json.Unmarshal(b, &answer); err != nil || answer.Error == "" || answer.State != nil || answer.NoService != strings.Contains(request, "service") {
				w.Errorf("reply to the invalid request %.40q: %s, %v, want an error", request, b, err)
			}
		}
	})
}

// A request is carried out only if it uses exactly the right that its command requires, whatever
// form its JSON has. Otherwise the node refuses and counts it.
func TestAdminRights(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		a := w.cluster("a", "b")[0]
		synctest.Wait()
		op := w.network.Operator("root")
		requests := []string{
			`{"command":"leave","node":"b"}`, `{"command":"down","node":"b"}`, `{"command":"prepare-for-shutdown"}`, `{"service":"cluster","command":"down","node":"b"}`,
			`{"command":"state","COMMAND":"down","node":"b"}`, `{"command":"state","command":"down","node":"b"}`, `{"command":"down","command":null,"node":"b"}`,
		}
		for _, request := range append(requests, `{"command":"state"}`) {
			right := transport.AdminRead
			if request == `{"command":"state"}` {
				right = transport.AdminAct
			}
			b, err := op.Ask(w.Context(), "cluster", right, "a", []byte(request))
			must(w.T, err)
			var answer struct {
				Error  string `json:"error"`
				Denied bool   `json:"denied"`
			}
			if err := json.Unmarshal(b, &answer); err != nil || !answer.Denied || !strings.Contains(answer.Error, "requires the right to") {
				w.Errorf("reply to %s with the right to %v: %s, %v, want a refusal", request, right, b, err)
			}
		}
		w.sleep(time.Minute)
		w.allUp(a, w.nodes["b"])
		s, err := a.Stats(w.Context())
		if must(w.T, err); s.AdminDenied != uint64(len(requests)+1) {
			w.Errorf("%d requests were counted as denied, want %d", s.AdminDenied, len(requests)+1)
		}
	})
}

// hostileError panics when its text is read.
type hostileError struct{}

func (hostileError) Error() string { panic("secret") }

// Config.Authorize decides about each request, before the node carries it out. Its error and its
// panic refuse the request.
func TestAuthorize(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		var mu sync.Mutex
		var seen []cluster.OperatorRequest
		nodes := w.clusterWith(func(c *cluster.Config) {
			c.Authorize = func(ctx context.Context, r cluster.OperatorRequest) error {
				mu.Lock()
				defer mu.Unlock()
				seen = append(seen, r)
				switch r.Operator {
				case "ann":
					return nil
				case "late":
					<-ctx.Done()
					return nil
				case "panics":
					panic("secret")
				case "hostile":
					return hostileError{}
				case "silent":
					return errors.New("")
				}
				return fmt.Errorf("%s may not %s", r.Operator, r.Command)
			}
		}, "a", "b")
		nodes[0].HandleAdmin("carts", map[string]transport.AdminRight{"drop": transport.AdminAct}, func(context.Context, string, string, transport.AdminRight, []byte) []byte {
			w.Error("a denied request reached its handler")
			return nil
		})
		synctest.Wait()
		denied := uint64(0)
		for _, name := range []string{"bob", "panics", "hostile", "silent", "late"} {
			admin := cluster.NewAdmin(w.network.Operator(name))
			_, stateErr := admin.State(w.Context(), "a")
			for command, err := range map[string]error{
				"state": stateErr, "leave": admin.Leave(w.Context(), "a", "b"), "down": admin.Down(w.Context(), "a", "b"), "prepare": admin.PrepareForShutdown(w.Context(), "a"),
			} {
				if denied++; !errors.Is(err, transport.ErrDenied) || strings.Contains(err.Error(), "secret") {
					w.Errorf("%s by %s: %v, want ErrDenied without the text of a panic", command, name, err)
				}
				if name == "bob" && !strings.Contains(err.Error(), "bob may not "+command) {
					w.Errorf("%s by bob: %v, want the text of Config.Authorize", command, err)
				}
			}
		}
		_, err := w.network.Operator("bob").Ask(w.Context(), "carts", transport.AdminAct, "a", []byte(`{"service":"carts","command":"drop"}`))
		must(w.T, err)
		w.allUp(nodes...)
		s, err := nodes[0].Stats(w.Context())
		if must(w.T, err); s.AdminDenied != denied+1 {
			w.Errorf("%d requests were counted as denied, want %d", s.AdminDenied, denied+1)
		}
		mu.Lock()
		if want := (cluster.OperatorRequest{Operator: "bob", Service: "carts", Command: "drop", Right: transport.AdminAct}); !slices.Contains(seen, want) {
			w.Errorf("Config.Authorize received %+v, want %+v among them", seen, want)
		}
		if want := (cluster.OperatorRequest{Operator: "bob", Service: "cluster", Command: "state", Right: transport.AdminRead}); seen[0] != want {
			w.Errorf("Config.Authorize first received %+v, want %+v", seen[0], want)
		}
		mu.Unlock()
		ann := cluster.NewAdmin(w.network.Operator("ann"))
		if s, err := ann.State(w.Context(), "a"); err != nil || len(s.Members) != 2 {
			w.Errorf("State by ann: %+v, %v, want two members", s, err)
		}
		must(w.T, ann.Leave(w.Context(), "a", "b"))
		w.wantEnded(nodes[1], cluster.ErrLeft)
	})
}

// The node writes a line for each action, and one line a minute for the reads and the refusals of
// the same kind.
func TestAdminLog(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		w.cluster("a")
		synctest.Wait()
		admin := cluster.NewAdmin(w.network.Operator("ann"))
		count := func(text string) int {
			synctest.Wait()
			return strings.Count(w.log.String(), text)
		}
		for range 5 {
			_, err := admin.State(w.Context(), "a")
			must(w.T, err)
			if err = admin.Leave(w.Context(), "a", "x"); !errors.Is(err, cluster.ErrNotMember) {
				w.Error(err)
			}
			_, err = w.network.Operator("ann").Ask(w.Context(), "cluster", transport.AdminRead, "a", []byte(`{"command":"down","node":"a"}`))
			must(w.T, err)
		}
		for text, want := range map[string]int{
			`msg="admin: read" node=`: 1, `operator=ann service=cluster command=state`: 1, `msg="admin: command received"`: 5,
			`operator=ann service=cluster command=leave request="{\"command\":\"leave\",\"node\":\"x\"}"`: 5, `msg="admin: request denied"`: 1,
		} {
			if got := count(text); got != want {
				w.Errorf("the log contains %q %d times, want %d", text, got, want)
			}
		}
		w.sleep(time.Minute)
		_, err := admin.State(w.Context(), "a")
		must(w.T, err)
		if got := count("command=state not_logged_before=4"); got != 1 {
			w.Errorf("the next line after a minute reports the 4 suppressed reads %d times, want 1", got)
		}
	})
}
