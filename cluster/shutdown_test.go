// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/plugins/inmem"
)

// Functions run in the order of their phases. A phase begins when the previous phase has ended. The
// node leaves during the phases from leave to exiting-done.
func TestShutdownPhases(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		nodes := w.cluster("a", "b")
		a := nodes[0]
		var mu sync.Mutex
		var got []string
		for p := cluster.PhaseTerminate + 1; p > 0; p-- { // the order of registration does not matter
			onShutdown(w.T, a, p-1, "note", func(context.Context) error {
				time.Sleep(time.Second)
				if err := a.Ready(); !errors.Is(err, cluster.ErrShuttingDown) || errors.Is(err, cluster.ErrStopped) {
					w.Errorf("Ready in phase %v: %v, want only ErrShuttingDown", p-1, err)
				}
				if _, err := a.OnShutdown(p-1, "late", func(context.Context) error { return nil }); !errors.Is(err, cluster.ErrShuttingDown) {
					w.Errorf("OnShutdown in phase %v: %v, want ErrShuttingDown", p-1, err)
				}
				mu.Lock()
				defer mu.Unlock()
				got = append(got, fmt.Sprintf("%v %v", p-1, a.State().Status(a.Self())))
				return nil
			})
		}
		remove := onShutdown(w.T, a, cluster.PhaseUnbind, "removed", func(context.Context) error {
			w.Error("a removed function was called")
			return nil
		})
		remove()
		for p, f := range map[cluster.Phase]func(context.Context) error{99: func(context.Context) error { return nil }, cluster.PhaseUnbind: nil} {
			none, err := a.OnShutdown(p, "nonsense", f)
			if !errors.Is(err, cluster.ErrInvalid) {
				w.Errorf("OnShutdown with an invalid phase or without a function: %v, want ErrInvalid", err)
			}
			none()
		}
		must(w.T, a.Shutdown(w.Context()))
		want := []string{
			"before-unbind up", "unbind up", "requests-done up", "stop-services up", "before-cluster-shutdown up", "stop-regions up",
		}
		if len(got) != 12 || !slices.Equal(got[:6], want) || got[8] != "exiting-done removed" || got[11] != "terminate removed" {
			w.Errorf("the functions ran in %q, want all phases in order", got)
		}
		w.allUp(nodes[1])
		must(w.T, a.Shutdown(w.Context())) // a second call
		if err := a.Ready(); !errors.Is(err, cluster.ErrLeft) {
			w.Errorf("Ready after the shutdown: %v, want ErrLeft", err)
		}
	})
}

// onShutdown registers f for a phase.
func onShutdown(t *testing.T, n *cluster.Node, p cluster.Phase, name string, f func(context.Context) error) (remove func()) {
	t.Helper()
	remove, err := n.OnShutdown(p, name, f)
	must(t, err)
	return remove
}

// The shutdown continues after a phase times out; errors and panics are logged. The context of a
// function ends at the time-out.
func TestShutdownPhaseTimeout(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		var infos []cluster.PhaseInfo
		a := w.start("a", func(c *cluster.Config) {
			c.PhaseTimeout = map[cluster.Phase]time.Duration{cluster.PhaseUnbind: time.Minute}
			c.Observer.Phase = func(i cluster.PhaseInfo) { infos = append(infos, i) }
		})
		w.allUp(a)
		stuck := make(chan struct{})
		onShutdown(w.T, a, cluster.PhaseUnbind, "stuck", func(ctx context.Context) error {
			<-stuck
			if ctx.Err() == nil {
				w.Error("the context of the function has not ended")
			}
			return nil
		})
		onShutdown(w.T, a, cluster.PhaseStopServices, "failing", func(context.Context) error { return errors.New("out of money") })
		onShutdown(w.T, a, cluster.PhaseStopServices, "panicking", func(context.Context) error { panic("at the disco") })
		begun := time.Now()
		must(w.T, a.Shutdown(w.Context()))
		if took := time.Since(begun); took < time.Minute || took > 2*time.Minute {
			w.Errorf("the shutdown took %v, want 1 to 2 minutes", took)
		}
		if infos[0] != (cluster.PhaseInfo{Phase: cluster.PhaseUnbind, Took: time.Minute, TimedOut: true}) || infos[1].TimedOut {
			w.Errorf("the observer received the phases %v, want a time-out of unbind only", infos)
		}
		for _, text := range []string{"out of money", "at the disco", "phase timed out", "unfinished=[stuck]"} {
			if !w.logged(text) {
				w.Errorf("%q was not logged", text)
			}
		}
		close(stuck)
	})
}

// A node that cannot leave ends after the time-outs of the phases.
func TestShutdownWhileDisconnected(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		nodes := w.clusterWith(func(c *cluster.Config) { c.Downing.StableAfter = time.Minute }, "a", "b")
		w.network.Disconnect("a", errors.New("cable pulled"))
		w.sleep(time.Second)
		if err := nodes[0].Shutdown(w.Context()); !errors.Is(err, cluster.ErrStopped) {
			w.Errorf("Shutdown: %v, want ErrStopped", err)
		}
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		w.network.Disconnect("b", errors.New("cable pulled"))
		if err := nodes[1].Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			w.Errorf("Shutdown: %v, want context.DeadlineExceeded", err)
		}
		w.wantEnded(nodes[1], cluster.ErrStopped)
	})
}

// A singleton that never returns does not keep the process alive.
func TestShutdownWithStuckSingleton(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		a := w.cluster("a")[0]
		release := make(chan struct{})
		defer close(release)
		must(w.T, a.Singleton(w.Context(), cluster.Singleton{Run: func(context.Context, *cluster.Inbox) error {
			<-release
			return nil
		}}))
		w.sleep(5 * time.Second)
		must(w.T, a.Shutdown(w.Context()))
		for _, text := range []string{"singleton: instance does not stop", "phase=terminate"} {
			if !w.logged(text) {
				w.Errorf("%q was not logged", text)
			}
		}
	})
}

// A downed node runs its shutdown phases without any attempt to leave.
func TestShutdownWhenDowned(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		nodes := w.clusterWith(func(c *cluster.Config) { // the node does not wait for the other members
			c.PhaseTimeout = map[cluster.Phase]time.Duration{cluster.PhaseClusterStop: time.Millisecond}
		}, "a", "b", "c")
		called := false
		onShutdown(w.T, nodes[2], cluster.PhaseStopRegions, "note", func(context.Context) error {
			called = true
			return nil
		})
		must(w.T, nodes[0].Down(w.Context(), nodes[2].Self()))
		<-nodes[2].Stopping()
		w.wantEnded(nodes[2], cluster.ErrDowned)
		if !called {
			w.Error("the shutdown of a downed node did not run its function")
		}
		// A disconnected node reports ErrDowned as well.
		w.network.Disconnect("b", errors.New("cable pulled"))
		must(w.T, nodes[1].Down(w.Context(), nodes[0].Self()))
		must(w.T, nodes[1].Down(w.Context(), nodes[1].Self()))
		w.wantEnded(nodes[1], cluster.ErrDowned)
	})
}

// The process receives SIGUSR1.
func TestShutdownOnSignal(t *testing.T) {
	t.Parallel()
	self, err := identity.New("a")
	must(t, err)
	n, err := cluster.Join(t.Context(), cluster.Config{
		Cluster: "bank", Carrier: inmem.NewNetwork(inmem.NetworkConfig{}).Carrier(self), Seeds: []string{"a"},
		Settings: cluster.Settings{LeaderInterval: 10 * time.Millisecond, InitialDelay: time.Millisecond},
	})
	must(t, err)
	onShutdown(t, n, cluster.PhaseBeforeUnbind, "note", func(context.Context) error { return nil })
	ended := make(chan error, 1)
	go func() { ended <- n.ShutdownOnSignal(t.Context(), syscall.SIGUSR1) }()
	for {
		// Repeat the signal: TestMain ignores it until ShutdownOnSignal has installed its handler.
		must(t, syscall.Kill(syscall.Getpid(), syscall.SIGUSR1))
		select {
		case err := <-ended:
			must(t, err)
			return
		case <-n.Stopping():
			must(t, <-ended)
			return
		case <-time.After(time.Millisecond):
		}
	}
}

func TestShutdownOnSignalReturns(t *testing.T) {
	t.Parallel()
	self, err := identity.New("a")
	must(t, err)
	other, err := identity.New("b")
	must(t, err)
	network := inmem.NewNetwork(inmem.NetworkConfig{})
	start := func(self identity.Node) *cluster.Node {
		n, err := cluster.Join(t.Context(), cluster.Config{Cluster: "bank", Carrier: network.Carrier(self), Seeds: []string{self.Name}})
		must(t, err)
		return n
	}
	n := start(self)
	n.Stop()
	if err := n.ShutdownOnSignal(t.Context()); !errors.Is(err, cluster.ErrStopped) {
		t.Errorf("ShutdownOnSignal of a stopped node: %v, want ErrStopped", err)
	}
	n = start(other)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	must(t, n.ShutdownOnSignal(ctx))
}

// An observer and a subscriber that block do not block the node or its shutdown.
func TestBlockedCallbacks(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		release := make(chan struct{})
		defer close(release)
		stuck := func(c *cluster.Config) {
			c.Observer = cluster.Observer{State: func(*cluster.State) { <-release }}
			c.MaxEvents = 10
		}
		a, b := w.start("a", stuck), w.start("b")
		reading := make(chan struct{})
		go func() {
			for range a.Events(context.WithoutCancel(w.Context())) {
				close(reading)
				<-release
				return
			}
		}()
		<-reading
		w.allUp(a, b)
		w.sleep(time.Minute)
		w.allUp(a, b)
		if len(b.State().Unreachable) > 0 {
			w.Error("the node with blocked callbacks was found unreachable")
		}
		must(w.T, a.Shutdown(w.Context()))
		w.allUp(b)
	})
}

// An observer that panics does not affect the node.
func TestPanickingObserver(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		a := w.start("a", func(c *cluster.Config) { c.Observer.State = func(*cluster.State) { panic("at the disco") } })
		w.allUp(a)
		synctest.Wait()
		if !w.logged("observer panicked") {
			w.Error("the panic was not logged")
		}
	})
}

func TestObserver(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		var mu sync.Mutex
		most := 0
		var instances []cluster.InstanceInfo
		var stats cluster.Stats
		a := w.start("a", func(c *cluster.Config) {
			c.StatsInterval = time.Second
			c.Observer = cluster.Observer{
				State: func(s *cluster.State) {
					mu.Lock()
					defer mu.Unlock()
					most = max(most, len(s.Members))
				},
				Stats: func(s cluster.Stats) {
					mu.Lock()
					defer mu.Unlock()
					stats = s
				},
				Instance: func(i cluster.InstanceInfo) {
					mu.Lock()
					defer mu.Unlock()
					instances = append(instances, i)
				},
			}
		})
		b := w.start("b")
		w.allUp(a, b)
		o := &instanceCounter{}
		o.host(w.T, a, b)
		w.sleep(10 * time.Second)
		must(w.T, a.Shutdown(w.Context()))
		mu.Lock()
		defer mu.Unlock()
		if most != 2 || len(instances) != 3 || instances[0].Ended || !instances[1].Stopping && !instances[1].Ended || instances[2].Ran < 10*time.Second {
			w.Errorf("the observer received %d members and the instances %v, want 2 members and the start, stop and end of an instance", most, instances)
		}
		if stats.Membership.Sent["heartbeat"] == 0 || stats.Transport.Lanes[0].FramesOut == 0 {
			w.Errorf("the observer received the stats %+v, want sent heartbeats and frames", stats)
		}
	})
}

func TestLeave(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		nodes := w.cluster("a", "b", "c")
		watched := make(chan error, 1)
		go func() { watched <- nodes[0].Watch(w.Context(), nodes[2].Self()) }()
		var events []cluster.EventKind
		read := make(chan struct{})
		go func() {
			defer close(read)
			for e := range nodes[0].Events(w.Context(), cluster.MemberLeft, cluster.MemberExited, cluster.MemberRemoved, cluster.MemberDowned) {
				if e.Kind != cluster.Snapshot && e.Member.Node == nodes[2].Self() {
					events = append(events, e.Kind)
				}
				if e.Kind == cluster.MemberRemoved {
					return
				}
			}
		}()
		synctest.Wait()
		must(w.T, nodes[0].Leave(w.Context(), identity.Node{Name: "c"})) // any node with the name
		w.wantEnded(nodes[2], cluster.ErrLeft)
		w.allUp(nodes[:2]...)
		<-read
		if last := events[len(events)-1]; events[0] != cluster.MemberLeft || last != cluster.MemberRemoved {
			w.Errorf("the events are %v, want MemberLeft first and MemberRemoved last", events)
		}
		must(w.T, <-watched)
		must(w.T, nodes[0].Watch(w.Context(), nodes[2].Self())) // the node is known to be gone
		if err := nodes[0].Leave(w.Context(), nodes[2].Self()); !errors.Is(err, cluster.ErrNotMember) {
			w.Errorf("Leave of a node that has left: %v, want ErrNotMember", err)
		}
		if err := nodes[2].Leave(w.Context(), nodes[0].Self()); !errors.Is(err, cluster.ErrLeft) {
			w.Errorf("Leave by a node that has left: %v, want ErrLeft", err)
		}
		if err := nodes[2].Watch(w.Context(), nodes[0].Self()); !errors.Is(err, cluster.ErrLeft) {
			w.Errorf("Watch by a node that has left: %v, want ErrLeft", err)
		}
	})
}

func TestDown(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		nodes := w.cluster("a", "b", "c")
		must(w.T, nodes[0].Down(w.Context(), nodes[1].Self()))
		w.wantEnded(nodes[1], cluster.ErrDowned)
		if err := nodes[1].Live(); !errors.Is(err, cluster.ErrDowned) {
			w.Errorf("Live after Down: %v, want ErrDowned", err)
		}
		w.allUp(nodes[0], nodes[2])
		must(w.T, nodes[0].Watch(w.Context(), nodes[1].Self()))
	})
}

func TestWatch(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		nodes := w.cluster("a", "b")
		if err := nodes[0].Watch(w.Context(), identity.Node{Name: "x", UID: 1}); !errors.Is(err, cluster.ErrNotMember) {
			w.Errorf("Watch of an unknown node: %v, want ErrNotMember", err)
		}
		ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
		defer cancel()
		if err := nodes[0].Watch(ctx, nodes[1].Self()); !errors.Is(err, context.DeadlineExceeded) {
			w.Errorf("Watch of a live node: %v, want context.DeadlineExceeded", err)
		}
	})
}

// After PrepareForShutdown no node can join, and all nodes can be stopped.
func TestPrepareForShutdown(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		nodes := w.cluster("a", "b")
		must(w.T, nodes[1].PrepareForShutdown(w.Context()))
		for _, n := range nodes {
			w.until(n, func(s *cluster.State) bool { return s.Status(n.Self()) == cluster.ReadyForShutdown })
			must(w.T, n.AwaitUp(w.Context()))
		}
		d := w.start("d")
		w.sleep(time.Minute)
		if d.State().Joined {
			w.Error("a node has joined a cluster that is about to stop")
		}
	})
}
