// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/sharding"
)

// census counts the instances that run.
type census struct {
	mu       sync.Mutex
	running  map[string]int // by number and count
	most     int            // of one number
	counts   map[int]int    // running instances by their count
	mixed    bool           // instances of different counts ran at the same time
	received []string
}

func (c *census) begin(i *sharding.Instance) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running == nil {
		c.running, c.counts = map[string]int{}, map[int]int{}
	}
	key := fmt.Sprint(i.Nr())
	c.running[key]++
	c.counts[i.Count()]++
	c.most = max(c.most, c.running[key])
	c.mixed = c.mixed || len(c.counts) > 1
}

func (c *census) end(i *sharding.Instance) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running[fmt.Sprint(i.Nr())]--
	if c.counts[i.Count()]--; c.counts[i.Count()] == 0 {
		delete(c.counts, i.Count())
	}
}

func (c *census) sum() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, running := range c.running {
		n += running
	}
	return n
}

// serve is an instance that replies with its node and its number.
func (c *census) serve(node string) func(context.Context, *sharding.Instance) error {
	return func(ctx context.Context, i *sharding.Instance) error {
		c.begin(i)
		defer c.end(i)
		for d := range i.All(ctx) {
			if !d.Asked() {
				c.mu.Lock()
				c.received = append(c.received, fmt.Sprintf("%d %s", i.Nr(), d.Payload))
				c.mu.Unlock()
				continue
			}
			if err := d.Reply(fmt.Appendf(nil, "%s %d %s", node, i.Nr(), d.Payload)); err != nil {
				return err
			}
		}
		return nil
	}
}

// groups starts nodes with a group of two instances and waits until it runs.
func (w *world) groups(c *census, names ...string) (refs []*sharding.GroupRef) {
	w.Helper()
	var hosts []*host
	for _, name := range names {
		h := w.join(name)
		hosts = append(hosts, h)
		w.up(hosts...)
		g, err := sharding.StartGroup(w.Context(), h.Node, sharding.Group{Name: "desk", Instances: 2, Run: c.serve(name)})
		w.must(err)
		refs = append(refs, g)
	}
	w.sleep(10 * time.Second)
	for _, g := range refs {
		w.must(g.Await(w.Context()))
	}
	return refs
}

func (w *world) askGroup(to sharding.Route, text string) string {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
	defer cancel()
	reply, err := to.Ask(ctx, []byte(text))
	if err != nil {
		w.Error(err)
	}
	return string(reply)
}

// TestGroupRoutes checks that each route reaches the instances that it promises, from each node.
func TestGroupRoutes(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		var c census
		for _, g := range w.groups(&c, "a", "b", "c") {
			first, second := w.askGroup(g.Any(), "x"), w.askGroup(g.Any(), "x")
			if first == second {
				w.Errorf("Any reaches %q twice", first)
			}
			for nr := range 2 {
				if got, want := w.askGroup(g.Instance(nr), "x"), fmt.Sprintf(" %d x", nr); !strings.HasSuffix(got, want) {
					w.Errorf("Instance(%d) reaches %q", nr, got)
				}
			}
			reached := map[string]bool{}
			for i := range 20 {
				key := fmt.Sprint("key", i)
				got := w.askGroup(g.ByKey(key), "x")
				reached[got] = true
				if again := w.askGroup(g.ByKey(key), "x"); again != got {
					w.Errorf("ByKey(%q) reaches %q and %q", key, got, again)
				}
			}
			if len(reached) != 2 {
				w.Errorf("20 keys reach %v, want both instances", reached)
			}
			replies := g.AskAll(w.Context(), []byte("y"))
			if len(replies) != 2 || replies[0].Err != nil || replies[1].Err != nil || replies[0].Node == replies[1].Node || replies[1].Nr != 1 {
				w.Errorf("AskAll returns %v, want replies of two nodes", replies)
			}
			w.must(g.SendAll([]byte("z")))
		}
		w.sleep(time.Second)
		if slices.Sort(c.received); !slices.Equal(c.received, []string{"0 z", "0 z", "0 z", "1 z", "1 z", "1 z"}) {
			w.Errorf("the instances received %q", c.received)
		}
	})
}

// TestAdminGroups checks that an operator receives the places of all groups from each node.
func TestAdminGroups(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		var c census
		w.groups(&c, "a", "b")
		_, err := sharding.StartWorkers(w.Context(), w.nodes["b"].Node, sharding.Workers{Name: "mill", Role: "miller"})
		w.must(err)
		client := w.network.Operator("op")
		defer func() { w.must(client.Close()) }()
		admin := sharding.NewAdmin(client)
		singletons, err := cluster.NewAdmin(client).Singletons(w.Context(), []string{"a", "b"})
		w.must(err)
		for name, want := range map[string]int{"a": 1, "b": 2} {
			var found []sharding.GroupStatus
			for g, err := range admin.Groups(w.Context(), name) {
				w.must(err)
				found = append(found, g)
			}
			if len(found) != want {
				w.Fatalf("node %s has the groups %v, want %d", name, found, want)
			}
			g := found[0]
			if g.Name != "desk" || g.Workers || len(g.Places) != 2 || g.Places[0].Node == "" || g.Places[0].Next+g.Places[0].Old != "" || !strings.HasPrefix(g.Coordinator, "a#") || g.Revision == 0 {
				w.Errorf("node %s describes the group as %+v", name, g)
			}
			if !slices.ContainsFunc(singletons, func(s cluster.SingletonStatus) bool { return s.Name == g.Singleton && s.Node == "a" }) {
				w.Errorf("node %s reports the singleton %q, want one of %+v on a", name, g.Singleton, singletons)
			}
			if want == 2 && (found[1].Name != "mill" || found[1].Role != "miller" || !found[1].Workers || len(found[1].Places) != 0) {
				w.Errorf("node %s describes the workers as %+v", name, found[1])
			}
		}
	})
}

// TestGroupLeastLoaded checks that LeastLoaded avoids an instance with open requests.
func TestGroupLeastLoaded(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		h := w.join("a")
		w.up(h)
		block := make(chan struct{})
		g, err := sharding.StartGroup(w.Context(), h.Node, sharding.Group{Name: "desk", Instances: 3, Run: func(ctx context.Context, i *sharding.Instance) error {
			for d := range i.All(ctx) {
				if string(d.Payload) == "wait" {
					<-block
				}
				if err := d.Reply(fmt.Append(nil, i.Nr())); err != nil {
					return err
				}
			}
			return nil
		}})
		w.must(err)
		w.must(g.Await(w.Context()))
		var asks sync.WaitGroup
		asks.Go(func() { w.askGroup(g.Instance(1), "wait") })
		w.sleep(time.Second)
		for range 6 {
			if got := w.askGroup(g.LeastLoaded(), ""); got == "1" {
				w.Error("LeastLoaded reaches the busy instance")
			}
		}
		close(block)
		asks.Wait()
	})
}

// TestGroupLeaves checks that a group serves without a gap while each of its nodes leaves, and that
// a node that leaves has no instance afterwards.
func TestGroupLeaves(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		var c census
		refs := w.groups(&c, "a", "b", "c", "d")
		for nr, name := range []string{"a", "b"} {
			done := make(chan struct{})
			go func() {
				defer close(done)
				w.must(w.nodes[name].Shutdown(w.Context()))
			}()
			for {
				if got := w.askGroup(refs[3].Any(), "x"); got == "" {
					w.Errorf("no reply while %s leaves", name)
				}
				if c.sum() < 2 {
					w.Errorf("%d instances run while %s leaves, want at least 2", c.sum(), name)
				}
				w.sleep(100 * time.Millisecond)
				select {
				case <-done:
				default:
					continue
				}
				break
			}
			if status, err := refs[3].Status(w.Context()); err != nil || strings.Contains(fmt.Sprint(status.Places), name+"#") {
				w.Errorf("after the leave of node %d the places are %v: %v", nr, status.Places, err)
			}
		}
		w.sleep(10 * time.Second)
		if c.sum() != 2 {
			w.Errorf("%d instances run, want 2", c.sum())
		}
	})
}

// TestGroupCrash checks that the instances of a crashed node start on another node.
func TestGroupCrash(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		var c census
		refs := w.groups(&c, "a", "b", "c")
		w.nodes["a"].Stop()
		<-w.nodes["a"].Done()
		w.sleep(time.Minute)
		w.must(refs[2].Await(w.Context()))
		for _, reply := range refs[2].AskAll(w.Context(), nil) {
			if reply.Err != nil || reply.Node.Name == "a" {
				w.Errorf("instance %d on %v: %v", reply.Nr, reply.Node, reply.Err)
			}
		}
	})
}

// TestGroupTolerates checks that the number of instances follows the size of the cluster.
func TestGroupTolerates(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		var refs []*sharding.GroupRef
		var hosts []*host
		for i, name := range []string{"a", "b", "c", "d", "e"} {
			h := w.join(name)
			hosts = append(hosts, h)
			w.up(hosts...)
			g, err := sharding.StartGroup(w.Context(), h.Node, sharding.Group{
				Name: "desk", Tolerate: func(nodes int) int { return nodes / 2 }, Run: new(census).serve(name),
			})
			w.must(err)
			refs = append(refs, g)
			w.sleep(15 * time.Second)
			if status, err := refs[0].Status(w.Context()); err != nil || len(status.Places) != (i+1)/2+1 {
				w.Errorf("with %d nodes there are %d instances, want %d: %v", i+1, len(status.Places), (i+1)/2+1, err)
			}
		}
	})
}

// TestGroupSenders checks that a node without the role sends and runs no instance.
func TestGroupSenders(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		var c census
		a, b := w.join("a", "desk"), w.join("b")
		w.up(a, b)
		group := func(node string) sharding.Group {
			return sharding.Group{Name: "desk", Role: "desk", Run: c.serve(node)}
		}
		_, err := sharding.StartGroup(w.Context(), a.Node, group("a"))
		w.must(err)
		sender, err := sharding.StartGroup(w.Context(), b.Node, group("b"))
		w.must(err)
		if got := w.askGroup(sender.Any(), "x"); got != "a 0 x" {
			w.Errorf("the sender reaches %q, want node a", got)
		}
	})
}

// TestInstancesRestart checks that an instance runs again after it returned, failed, panicked or
// called Goexit, and that a request that it had received is refused.
func TestInstancesRestart(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		h := w.join("a")
		w.up(h)
		runs := 0
		g, err := sharding.StartGroup(w.Context(), h.Node, sharding.Group{Name: "desk", Run: func(ctx context.Context, i *sharding.Instance) error {
			d, err := i.Receive(ctx)
			if err != nil {
				return err
			}
			switch runs++; runs {
			case 1:
				return nil
			case 2:
				return errors.New("out of money")
			case 3:
				panic("at the disco")
			case 4:
				runtime.Goexit()
			}
			return d.Reply([]byte("at last"))
		}})
		w.must(err)
		w.must(g.Await(w.Context()))
		for range 4 {
			if _, err := g.Any().Ask(w.Context(), nil); !errors.Is(err, cluster.ErrRefused) {
				w.Errorf("a request to an instance that ends: %v, want ErrRefused", err)
			}
		}
		if got := w.askGroup(g.Any(), ""); got != "at last" {
			w.Errorf("the last run replies %q", got)
		}
		for _, want := range []string{"out of money", "at the disco", "Goexit"} {
			if !strings.Contains(w.log.String(), want) {
				w.Errorf("the log does not contain %q", want)
			}
		}
	})
}

// TestWorkers checks that each worker runs once while nodes join, leave and crash, that all workers
// run afterwards, and that workers of different counts never run at the same time.
func TestWorkers(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		var c census
		var refs []*sharding.GroupRef
		start := func(name string) {
			h := w.join(name)
			w.must(h.AwaitUp(w.Context()))
			g, err := sharding.StartWorkers(w.Context(), h.Node, sharding.Workers{Name: "mill", Count: 6, Run: func(ctx context.Context, i *sharding.Instance) error {
				c.begin(i)
				defer c.end(i)
				<-ctx.Done()
				<-time.After(time.Second) // the end takes a while
				return nil
			}})
			w.must(err)
			refs = append(refs, g)
		}
		check := func(when string, workers int) {
			w.Helper()
			w.sleep(time.Minute)
			w.must(refs[len(refs)-1].Await(w.Context()))
			if w.sleep(time.Second); c.sum() != workers || c.most > 1 || c.mixed {
				w.Errorf("%s, %d workers run, %d of one number at most, of several counts: %t; want %d, 1, false", when, c.sum(), c.most, c.mixed, workers)
			}
		}
		start("a")
		check("with one node", 6)
		start("b")
		start("c")
		check("with three nodes", 6)
		w.must(refs[1].Rescale(w.Context(), 4))
		check("after Rescale", 4)
		w.must(w.nodes["a"].Shutdown(w.Context()))
		check("after a leave", 4)
		start("d")
		w.nodes["b"].Stop()
		check("after a crash", 4)
		w.must(refs[2].Rescale(w.Context(), 0))
		check("after the return to the configured count", 6)
	})
}

// TestWorkersOfSuspendedNode checks that a node that is cut off ends its workers before they start
// on other nodes.
func TestWorkersOfSuspendedNode(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		var c census
		var hosts []*host
		for _, name := range []string{"a", "b", "c"} {
			h := w.join(name)
			hosts = append(hosts, h)
			w.up(hosts...)
			_, err := sharding.StartWorkers(w.Context(), h.Node, sharding.Workers{Name: "mill", Count: 3, Run: func(ctx context.Context, i *sharding.Instance) error {
				c.begin(i)
				defer c.end(i)
				<-ctx.Done()
				return nil
			}})
			w.must(err)
		}
		w.sleep(30 * time.Second)
		if c.sum() != 3 {
			w.Errorf("%d workers run, want 3", c.sum())
		}
		heal := w.network.Partition([]string{"c"}, []string{"a", "b"})
		w.sleep(2 * time.Minute)
		if c.sum() != 3 || c.most > 1 {
			w.Errorf("%d workers run, %d of one number at most, want 3 and 1", c.sum(), c.most)
		}
		heal()
	})
}

// TestInvalidGroups checks that all mistakes are reported with the names of their fields.
func TestInvalidGroups(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		h := w.join("a")
		w.up(h)
		_, err := sharding.StartGroup(w.Context(), h.Node, sharding.Group{
			Name: " ", Role: "\xff", Instances: -1, MaxInstances: -1, MaxInbox: -1, RestartBackoff: -1,
		})
		for _, field := range []string{"Name", "Role", "Instances", "MaxInstances", "MaxInbox", "RestartBackoff"} {
			if !errors.Is(err, sharding.ErrInvalid) || !strings.Contains(err.Error(), "Group."+field) {
				w.Errorf("%v does not name Group.%s", err, field)
			}
		}
		if _, err = sharding.StartWorkers(w.Context(), h.Node, sharding.Workers{Name: "mill", Count: 1001}); !errors.Is(err, sharding.ErrInvalid) || !strings.Contains(err.Error(), "Workers.Count") {
			w.Errorf("StartWorkers with too many workers: %v", err)
		}
		g, err := sharding.StartGroup(w.Context(), h.Node, sharding.Group{Name: "desk"})
		w.must(err)
		if _, err = sharding.StartGroup(w.Context(), h.Node, sharding.Group{Name: "desk"}); !errors.Is(err, sharding.ErrInvalid) {
			w.Errorf("the same group again: %v, want ErrInvalid", err)
		}
		if err = g.Rescale(w.Context(), 1001); !errors.Is(err, sharding.ErrInvalid) {
			w.Errorf("Rescale to too many instances: %v, want ErrInvalid", err)
		}
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		if _, err = g.Any().Ask(ctx, nil); !errors.Is(err, cluster.ErrNotHosted) || !errors.Is(err, context.DeadlineExceeded) {
			w.Errorf("Ask without an instance: %v, want ErrNotHosted and DeadlineExceeded", err)
		}
		if err = g.Any().Send(nil); !errors.Is(err, cluster.ErrNotHosted) {
			w.Errorf("Send without an instance: %v, want ErrNotHosted", err)
		}
	})
}
