// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

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

// Requests for the service of another package are passed to its handler.
func TestHandleAdmin(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		a := w.cluster("a")[0]
		a.HandleAdmin("carts", func(_ context.Context, operator string, request []byte) []byte {
			return append([]byte(operator+" "), request...)
		})
		synctest.Wait()
		request := `{"service":"carts","node":[1]}`
		b, err := w.network.Operator("root").Ask(w.Context(), "a", []byte(request))
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
		a.HandleAdmin("gone", func(context.Context, string, []byte) []byte { return []byte("wrong") })
		a.HandleAdmin("gone", nil)
		synctest.Wait() // operators find a node soon after it has joined
		asker := w.network.Operator("root")
		for _, request := range []string{"", "{", "[]", `{"command":"explode"}`, `{"command":"leave"}`, `{"command":"state","after":"#"}`, `{"service":"gone","command":"state"}`, `{"service":"none"}`, `{"command":"down","node":"` + strings.Repeat("x", 9999) + `"}`} {
			b, err := asker.Ask(w.Context(), "a", []byte(request))
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
