// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/transport"
)

// A panic of the event loop ends the node and its singletons.
func TestLoopThatPanics(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		nodes := w.cluster("a", "b", "c")
		o := &instanceCounter{}
		o.host(w.T, nodes...)
		o.await(w.T, "a")
		p := proxyOf(w, nodes[0], cluster.ProxyConfig{Singleton: "nobody"})
		asked := make(chan error, 1)
		go func() {
			_, err := p.Ask(w.Context(), nil)
			asked <- err
		}()
		synctest.Wait()
		if err := nodes[0].OnLoop(w.Context(), func() { panic("at the disco") }); !errors.Is(err, cluster.ErrFailed) {
			w.Errorf("OnLoop: %v, want ErrFailed", err)
		}
		if err := <-asked; !errors.Is(err, cluster.ErrFailed) {
			w.Errorf("Ask: %v, want ErrFailed", err)
		}
		w.wantEnded(nodes[0], cluster.ErrFailed)
		if where := o.runs(w.T); where != "" {
			w.Errorf("the singleton still runs on %q", where)
		}
		if !w.logged("at the disco") {
			w.Error("the panic was not logged")
		}
		for range nodes[0].Events(w.Context()) { // the iteration ends with the node
		}
		w.allUp(nodes[1:]...)
	})
}

// An overloaded node drops protocol messages, counts them and continues.
func TestOverloadedNode(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		drops := make(chan cluster.Drop, 1000)
		a := w.start("a", func(c *cluster.Config) {
			c.MaxInputs = 10
			c.Observer.Dropped = func(d cluster.Drop) { drops <- d }
		})
		w.allUp(a)
		self, err := identity.New("stranger")
		must(w.T, err)
		stranger, err := transport.Open(w.network.Carrier(self), transport.Config{})
		must(w.T, err)
		defer func() { must(w.T, stranger.Close()) }()
		release, stopped := make(chan struct{}), make(chan struct{})
		go func() {
			_ = a.OnLoop(w.Context(), func() {
				close(stopped)
				<-release
			})
		}()
		<-stopped
		for range 100 {
			must(w.T, stranger.SendToName("a", transport.FirstClusterKind, []byte("garbage")))
		}
		synctest.Wait()
		close(release)
		w.sleep(time.Minute)
		w.allUp(a)
		stats, err := a.Stats(w.Context())
		must(w.T, err)
		if n := stats.Dropped[cluster.DroppedInput]; n < 90 || n > 100 || uint64(len(drops)) != n {
			w.Errorf("%d messages were dropped and the observer received %d, want the same number from 90 to 100", n, len(drops))
		}
		if d := <-drops; d.Reason != cluster.DroppedInput || d.Node != self {
			w.Errorf("the observer received %+v, want DroppedInput from %v", d, self)
		}
	})
}

// A process that was paused for a minute ends, because it was downed. There is never more than one
// instance of its singleton.
func TestPausedNode(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		nodes := w.cluster("a", "b", "c")
		o := &instanceCounter{}
		o.host(w.T, nodes...)
		o.await(w.T, "a")
		resume := w.network.Pause("a")
		w.allUp(nodes[1:]...)
		for o.started() < 2 {
			w.sleep(time.Second)
		}
		resume()
		w.wantEnded(nodes[0], cluster.ErrDowned)
		w.allUp(nodes[1:]...)
		o.runs(w.T)
	})
}

// blocked is a log handler that never returns.
type blocked struct {
	slog.Handler

	release chan struct{}
}

func (b blocked) Handle(context.Context, slog.Record) error {
	<-b.release
	return nil
}

func (b blocked) Enabled(context.Context, slog.Level) bool { return true }
func (b blocked) WithAttrs([]slog.Attr) slog.Handler       { return b }
func (b blocked) WithGroup(string) slog.Handler            { return b }

// A log handler that blocks does not block the goroutines that log.
func TestBlockedLogHandler(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		release := make(chan struct{})
		defer close(release)
		a := w.start("a", func(c *cluster.Config) { c.Logger = slog.New(blocked{release: release}) })
		b := w.start("b")
		w.allUp(a, b)
		// The transport logs that no handler exists for such messages.
		must(w.T, b.Transport().Send(a.Self(), transport.Control, transport.FirstUserKind, nil))
		a.Logger().With(slog.String("a", "b")).WithGroup("g").InfoContext(w.Context(), "hello")
		w.sleep(time.Minute)
		w.allUp(a, b)
		must(w.T, a.Shutdown(w.Context()))
		a.Logger().InfoContext(w.Context(), "the end")
	})
}

// State returns all members, even if it needs several requests.
func TestAdminStateOfManyMembers(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		const count = 40
		roles := make([]string, 64)
		for i := range roles {
			roles[i] = fmt.Sprintf("%0128d", i)
		}
		var nodes []*cluster.Node
		for i := range count {
			nodes = append(nodes, w.start(choose(i == 0, "a", fmt.Sprintf("n%d", i)), func(c *cluster.Config) { c.Roles = roles }))
		}
		w.allUp(nodes...)
		first, err := nodes[1].Summary("")
		must(w.T, err)
		if !first.More || len(first.Members) >= count {
			w.Errorf("the first reply has %d members and More %t, want fewer than %d and true", len(first.Members), first.More, count)
		}
		s, err := cluster.NewAdmin(w.network.Operator("root")).State(w.Context(), "n1")
		must(w.T, err)
		if len(s.Members) != count || s.More {
			w.Fatalf("State returned %d members and More %t, want %d and false", len(s.Members), s.More, count)
		}
		for i, m := range nodes[1].State().Members {
			if s.Members[i].Node != m.Node.String() {
				w.Errorf("member %d is %s, want %v", i, s.Members[i].Node, m.Node)
			}
		}
	})
}

func choose[T any](is bool, yes, no T) T {
	if is {
		return yes
	}
	return no
}
