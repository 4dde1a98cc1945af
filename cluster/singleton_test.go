// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/internal/loop"
	"github.com/refold-io/refold/lease"
	"github.com/refold-io/refold/plugins/inmem"
)

// instanceCounter counts the instances of a singleton.
type instanceCounter struct {
	mu      sync.Mutex
	now     map[string]bool
	most    int
	history []string
}

// on returns a singleton for a node. Its instance records the name of the node.
func (o *instanceCounter) on(n *cluster.Node) cluster.Singleton {
	name := n.Self().Name
	return cluster.Singleton{Name: "one", Run: func(ctx context.Context, inbox *cluster.Inbox) error {
		o.enter(name)
		defer o.leave(name)
		for d := range inbox.All(ctx) {
			_ = d.Reply([]byte(name + " " + string(d.Payload)))
		}
		return nil
	}}
}

func (o *instanceCounter) enter(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.now == nil {
		o.now = map[string]bool{}
	}
	o.now[name] = true
	o.most = max(o.most, len(o.now))
	o.history = append(o.history, name)
}

func (o *instanceCounter) leave(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.now, name)
}

// runs returns the nodes on which instances run. The test fails if two instances ever ran at the
// same time.
func (o *instanceCounter) runs(t *testing.T) string {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.most > 1 {
		t.Errorf("%d instances ran at the same time: %v", o.most, o.history)
	}
	where := ""
	for name := range o.now {
		where += name
	}
	return where
}

// started returns the number of started instances.
func (o *instanceCounter) started() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.history)
}

// await waits until an instance runs on the named node, or until no instance runs if where is "".
func (o *instanceCounter) await(t *testing.T, where string) {
	t.Helper()
	for range 3000 {
		if o.runs(t) == where {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatalf("the singleton runs on %q, want %q", o.runs(t), where)
}

func (o *instanceCounter) host(t *testing.T, nodes ...*cluster.Node) {
	t.Helper()
	for _, n := range nodes {
		must(t, n.Singleton(t.Context(), o.on(n)))
	}
}

// When the node of the instance leaves, the instance is handed over to the next oldest node. When
// the node of the instance crashes, the instance starts on another node after the removal margin.
func TestSingletonHandOver(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		var nodes []*cluster.Node
		for _, name := range []string{"a", "b", "c", "d"} { // the oldest first
			nodes = append(nodes, w.start(name))
			w.allUp(nodes...)
		}
		o := &instanceCounter{}
		o.host(w.T, nodes...)
		o.await(w.T, "a")
		must(w.T, nodes[0].Shutdown(w.Context()))
		o.await(w.T, "b")
		if !w.logged("singleton: manager changed state") {
			w.Error("the change of the manager's state was not logged")
		}
		nodes[1].Stop() // crashes
		o.await(w.T, "")
		o.await(w.T, "c")
		w.allUp(nodes[2:]...)
	})
}

// The other nodes wait for an instance that stops slowly, and its node logs a warning.
func TestSingletonThatDoesNotStop(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		nodes := w.cluster("a", "b")
		o := &instanceCounter{}
		release := make(chan struct{})
		must(w.T, nodes[0].Singleton(w.Context(), cluster.Singleton{Name: "one", Run: func(ctx context.Context, _ *cluster.Inbox) error {
			o.enter("a")
			defer o.leave("a")
			<-ctx.Done()
			<-release
			return context.Cause(ctx)
		}}))
		o.host(w.T, nodes[1])
		o.await(w.T, "a")
		must(w.T, nodes[1].Leave(w.Context(), nodes[0].Self()))
		time.Sleep(8 * time.Second)
		if o.runs(w.T) != "a" {
			w.Error("another instance started before the first one stopped")
		}
		if !w.logged("singleton: instance does not stop") {
			w.Error("the slow stop was not logged")
		}
		close(release)
		o.await(w.T, "b")
		w.wantEnded(nodes[0], cluster.ErrLeft)
	})
}

// An instance that returns or panics is not started again, and the node continues.
func TestSingletonReturns(t *testing.T) {
	t.Parallel()
	for name, run := range map[string]func(context.Context, *cluster.Inbox) error{
		"singleton: instance returned": func(context.Context, *cluster.Inbox) error { return nil },
		"out of money":                 func(context.Context, *cluster.Inbox) error { return errors.New("out of money") },
		"singleton: instance failed":   func(context.Context, *cluster.Inbox) error { panic("at the disco") },
	} {
		bubble(t, func(w *world) {
			a := w.cluster("a")[0]
			starts := 0
			must(w.T, a.Singleton(w.Context(), cluster.Singleton{Run: func(ctx context.Context, b *cluster.Inbox) error {
				starts++
				return run(ctx, b)
			}}))
			time.Sleep(time.Minute)
			synctest.Wait()
			if starts != 1 {
				w.Errorf("%s: the instance was started %d times, want once", name, starts)
			}
			if !w.logged(name) {
				w.Errorf("%s: the end was not logged", name)
			}
			w.allUp(a)
		})
	}
}

// A singleton with a lease has no instance before the lease is acquired or after the lease is lost.
func TestSingletonWithLease(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		store := slowLeases{inmem.NewLeases(time.Minute)}
		nodes := w.clusterWith(func(c *cluster.Config) { c.Leases = store }, "a", "b")
		if _, err := store.Create(w.Context(), "bank-singleton-one", "somebody"); err != nil {
			w.Fatal(err)
		}
		o := &instanceCounter{}
		for _, n := range nodes {
			s := o.on(n)
			s.Lease = true
			must(w.T, n.Singleton(w.Context(), s))
		}
		time.Sleep(50 * time.Second)
		if where := o.runs(w.T); where != "" {
			w.Errorf("the singleton runs on %s without the lease", where)
		}
		o.await(w.T, "a")
		entry, err := store.Get(w.Context(), "bank-singleton-one")
		if err != nil || entry.Owner != nodes[0].Self().String() {
			w.Errorf("Get of the lease = %+v, %v, want the first node as owner", entry, err)
		}
		must(w.T, store.Delete(w.Context(), "bank-singleton-one", entry.Revision))
		for o.started() < 2 { // the lease is requested again
			time.Sleep(time.Second)
		}
		o.await(w.T, "a")
		must(w.T, nodes[0].Shutdown(w.Context()))
		o.await(w.T, "b")
		nodes[1].Stop() // the node does not leave, but releases its leases
		<-nodes[1].Done()
		if _, err := store.Get(w.Context(), "bank-singleton-one"); !errors.Is(err, lease.ErrFree) {
			w.Errorf("Get of the released lease: %v, want ErrFree", err)
		}
	})
}

// slowLeases is a store that deletes entries slowly.
type slowLeases struct{ *inmem.Leases }

func (s slowLeases) Delete(ctx context.Context, name string, revision uint64) error {
	select {
	case <-time.After(time.Second):
		return s.Leases.Delete(ctx, name, revision)
	case <-ctx.Done():
		return ctx.Err()
	}
}

func TestSingletonArguments(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		a := w.cluster("a")[0]
		run := func(ctx context.Context, _ *cluster.Inbox) error { <-ctx.Done(); return nil }
		must(w.T, a.Singleton(w.Context(), cluster.Singleton{Name: "one", Run: run}))
		for i, s := range []cluster.Singleton{
			{},
			{Name: "one", Run: run},
			{Name: "two", Run: run, Lease: true},
			{Name: "three", Run: run, MaxInbox: -1},
			{Name: "four", Run: run, RetryInterval: -1},
			{Name: string(make([]byte, 256)), Run: run},
		} {
			if err := a.Singleton(w.Context(), s); !errors.Is(err, cluster.ErrInvalid) {
				w.Errorf("singleton %d: %v, want ErrInvalid", i, err)
			} else if i == 4 && !strings.HasSuffix(err.Error(), "cluster: invalid: Singleton.RetryInterval is -1ns, it must not be negative") {
				w.Errorf("the error does not name the field: %v", err)
			}
		}
		must(w.T, a.Singleton(w.Context(), cluster.Singleton{Name: "four", Run: run})) // the name is free again
		a.Stop()
		<-a.Done()
		if err := a.Singleton(w.Context(), cluster.Singleton{Name: "five", Run: run}); !errors.Is(err, cluster.ErrStopped) {
			w.Errorf("Singleton on a node that has ended: %v, want ErrStopped", err)
		}
	})
}

// Nodes without the role run no instance, but their proxies find the instance.
func TestSingletonWithRole(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		a := w.cluster("a")[0]
		b := w.start("b", func(c *cluster.Config) { c.Roles = []string{"vault"} })
		w.allUp(a, b)
		o := &instanceCounter{}
		for _, n := range []*cluster.Node{a, b} {
			s := o.on(n)
			s.Role = "vault"
			must(w.T, n.Singleton(w.Context(), s))
		}
		o.await(w.T, "b")
		p, err := a.Proxy(w.Context(), cluster.ProxyConfig{Singleton: "one", Role: "vault"})
		must(w.T, err)
		answer, err := p.Ask(w.Context(), []byte("hello"))
		if fmt.Sprintf("%s %v", answer, err) != "b hello <nil>" {
			w.Errorf("Ask = %s, %v, want \"b hello\"", answer, err)
		}
	})
}

// Messages for a singleton are charged while the proxy or the inbox keeps them, and requests until
// they are answered.
func TestChargeOfSingletons(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		nodes := w.cluster("a", "b")
		a, b := nodes[0], nodes[1]
		want := func(phase string, n *cluster.Node, account string, messages int) {
			w.Helper()
			synctest.Wait()
			if held := loop.BudgetOf(n.Transport()).Account(account).Held(); held < 1000*messages || held > 1300*messages {
				w.Errorf("%s: the account %q holds %d bytes, want those of %d messages of 1,000 bytes", phase, account, held, messages)
			}
		}
		payload := make([]byte, 1000)
		missing := proxyOf(w, b, cluster.ProxyConfig{Singleton: "missing", Role: "none", BufferSize: 3})
		for range 5 {
			must(w.T, missing.Send(w.Context(), payload))
		}
		want("a full buffer", b, "proxy of missing", 3)
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		if _, err := missing.Ask(ctx, payload); !errors.Is(err, cluster.ErrNotHosted) {
			w.Errorf("Ask without an instance: %v, want ErrNotHosted", err)
		}
		cancel()
		want("a request that was withdrawn", b, "proxy of missing", 2)
		must(w.T, missing.Close(w.Context()))
		want("a closed proxy", b, "proxy of missing", 0)

		receive, answer := make(chan struct{}), make(chan struct{})
		must(w.T, a.Singleton(w.Context(), cluster.Singleton{Name: "slow", Run: func(ctx context.Context, inbox *cluster.Inbox) error {
			<-receive
			var asked []*cluster.Delivery
			for range 6 {
				d, err := inbox.Receive(ctx)
				if err != nil {
					return err
				}
				if d.Asked() {
					asked = append(asked, d)
				}
			}
			<-answer
			_ = asked[0].Reply(nil)
			<-ctx.Done()
			return nil
		}}))
		slow := proxyOf(w, b, cluster.ProxyConfig{Singleton: "slow"})
		w.sleep(5 * time.Second)
		for range 4 {
			go func() { _, _ = slow.Ask(w.Context(), payload) }()
		}
		for range 2 {
			must(w.T, slow.Send(w.Context(), payload))
		}
		want("sent messages", b, "proxy of slow", 0)
		want("waiting messages", a, "singleton slow", 6)
		close(receive)
		want("received messages", a, "singleton slow", 4)
		close(answer)
		want("an answered request", a, "singleton slow", 3)
		must(w.T, a.Leave(w.Context(), a.Self()))
		w.sleep(30 * time.Second)
		want("an ended instance", a, "singleton slow", 0)
	})
}
