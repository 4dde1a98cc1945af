// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/cmd/refold/internal/fleet"
)

const (
	clients = 8
	// answerTimeout is how long a client waits for an answer.
	answerTimeout = 3 * time.Second
	counter       = "counter"
	counters      = "counters"
)

// crowd is some clients that change data on the nodes of a scene, each one thing after the other, and what they know of it.
type crowd struct {
	s    *scene
	rand *rand.Rand
	// local lets them write to one node, too.
	local bool

	resting bool
	last    uint64
	open    map[uint64]*asked
	answers map[uint64]*fleet.Answer // for those that are no client's
	acked   int                      // changes
	why     map[string]int           // what failed

	count  tally
	counts [clients]tally
	sets   [clients]map[string]*fate
	names  int
}

// asked is a request that was not answered yet.
type asked struct {
	client  int // -1: none
	node    string
	request fleet.Request
}

// tally is what was counted for certain, and what perhaps.
type tally struct{ certain, perhaps int64 }

// fate is what was done to an element.
type fate struct{ added, touched, removed bool }

func newCrowd(s *scene, seed uint64) *crowd {
	c := &crowd{s: s, rand: rand.New(rand.NewPCG(seed, 5)), resting: true, open: map[uint64]*asked{}, answers: map[uint64]*fleet.Answer{}, why: map[string]int{}}
	for i := range c.sets {
		c.sets[i] = map[string]*fate{}
	}
	s.crowd = c
	return c
}

// setOf is the key of a client's set.
func setOf(client int) string { return fmt.Sprintf("set-%d", client) }

// nameOf is a client's counter in the map.
func nameOf(client int) string { return fmt.Sprintf("client-%d", client) }

// resume lets the clients work.
func (c *crowd) resume() {
	c.resting = false
	for i := range clients {
		c.work(i)
	}
}

// rest lets them end what they do.
func (c *crowd) rest() {
	c.s.t.Helper()
	c.resting = true
	c.s.until("all clients have an answer", func() bool { return len(c.open) == 0 })
}

// nodes are those that are Up, by what they know.
func (c *crowd) nodes() (names []string) {
	for _, name := range c.s.fleet.Running() {
		v := c.s.views[name]
		if v == nil || c.s.ended[name] != "" {
			continue
		}
		for _, m := range v.Members {
			if m.Node == c.s.ids[name] && m.Status == cluster.Up.String() {
				names = append(names, name)
			}
		}
	}
	return names
}

// work lets a client do the next thing, at any node. Without one it rests until there is news.
func (c *crowd) work(client int) {
	if c.resting {
		return
	}
	nodes := c.nodes()
	c.rand.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
	request := c.next(client)
	for _, name := range nodes {
		if c.ask(client, name, request) {
			return
		}
	}
}

// ask asks a node. It is false if the node is gone.
func (c *crowd) ask(client int, node string, request fleet.Request) bool {
	c.last++
	request.ID, request.Timeout = c.last, answerTimeout
	if c.s.fleet.Ask(node, request) != nil {
		return false
	}
	c.open[c.last] = &asked{client, node, request}
	return true
}

// next is what a client does next.
func (c *crowd) next(client int) fleet.Request {
	local := c.local && c.rand.IntN(2) == 0
	switch c.rand.IntN(4) {
	case 0:
		return fleet.Request{Do: fleet.Count, Key: counter, N: 1 + c.rand.Int64N(9), Local: local}
	case 1:
		return fleet.Request{Do: fleet.CountIn, Key: counters, Name: nameOf(client), N: 1 + c.rand.Int64N(9), Local: local}
	case 2:
		var there []string
		for name, f := range c.sets[client] {
			if f.added && !f.touched {
				there = append(there, name)
			}
		}
		if len(there) > 3 {
			slices.Sort(there)
			return fleet.Request{Do: fleet.Remove, Key: setOf(client), Name: there[c.rand.IntN(len(there))], Local: local}
		}
	}
	c.names++
	return fleet.Request{Do: fleet.Add, Key: setOf(client), Name: fmt.Sprint(c.names), Local: local}
}

// take takes an answer.
func (c *crowd) take(a *fleet.Answer) {
	o := c.open[a.ID]
	delete(c.open, a.ID)
	if o.client < 0 {
		c.answers[a.ID] = a
		return
	}
	c.settle(o, a.Error == "", a.Unknown)
	if a.Error != "" {
		_, why, _ := strings.Cut(a.Error, `": `) // behind the key
		c.why[why]++
	}
	c.work(o.client)
}

// lose notes that a process is gone, and does not answer any more.
func (c *crowd) lose(node string) {
	if c == nil {
		return
	}
	for id, o := range c.open {
		if o.node == node {
			delete(c.open, id)
			if o.client >= 0 {
				c.settle(o, false, true)
				c.work(o.client)
			}
		}
	}
}

// settle notes what has become of a change.
func (c *crowd) settle(o *asked, done, perhaps bool) {
	if done {
		c.acked++
	} else if !perhaps {
		return
	}
	r := &o.request
	switch r.Do {
	case fleet.Count:
		c.count.add(r.N, done)
	case fleet.CountIn:
		c.counts[o.client].add(r.N, done)
	case fleet.Add:
		c.sets[o.client][r.Name] = &fate{added: done}
	case fleet.Remove:
		f := c.sets[o.client][r.Name]
		f.touched, f.removed = true, done
	case fleet.Show, fleet.Digest:
	}
}

func (t *tally) add(n int64, certain bool) {
	if certain {
		t.certain += n
	} else {
		t.perhaps += n
	}
}

// admits reports whether a count can be what was counted.
func (t *tally) admits(n int64) bool { return t.certain <= n && n <= t.certain+t.perhaps }

// until waits until the clients have changed so much more.
func (c *crowd) until(more int) {
	c.s.t.Helper()
	least := c.acked + more
	c.s.until(fmt.Sprintf("%d changes were acknowledged", least), func() bool { return c.acked >= least })
}

// look asks all nodes for the same, and returns the answers. A node that is too busy to answer in time is asked again.
func (c *crowd) look(names []string, request fleet.Request) []string {
	c.s.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		out, why := c.lookOnce(names, request)
		if why == "" {
			return out
		}
		if time.Now().After(deadline) {
			c.s.t.Fatal(why)
		}
	}
}

// lookOnce is look, but it says what a node could not answer.
func (c *crowd) lookOnce(names []string, request fleet.Request) (out []string, why string) {
	c.s.t.Helper()
	ids := make([]uint64, len(names))
	for i, name := range names {
		if !c.ask(-1, name, request) {
			c.s.t.Fatalf("%s is gone", name)
		}
		ids[i] = c.last
	}
	c.s.until("all nodes have answered", func() bool { return len(c.open) == 0 })
	out = make([]string, len(names))
	for i, id := range ids {
		a := c.answers[id]
		if a == nil {
			c.s.t.Fatalf("%s is gone", names[i])
		}
		delete(c.answers, id)
		if out[i] = string(a.Value); a.Error != "" {
			why = fmt.Sprintf("%s: %s %s: %s", names[i], request.Do, request.Key, a.Error)
		}
	}
	return out, why
}

// pollInterval is how often it is asked for what the nodes don't tell.
const pollInterval = 50 * time.Millisecond

// same waits until some nodes hold the same, which nobody changes meanwhile.
func (c *crowd) same(names ...string) {
	c.s.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		digests := c.look(names, fleet.Request{Do: fleet.Digest})
		if len(slices.Compact(slices.Clone(digests))) == 1 {
			return
		}
		if time.Now().After(deadline) {
			c.s.t.Fatalf("after %v the nodes still hold %v", patience, digests)
		}
		c.s.during(pollInterval)
	}
}

// show returns the value of a key, which has to be the same on all nodes.
func (c *crowd) show(names []string, key string, into any) {
	c.s.t.Helper()
	values := c.look(names, fleet.Request{Do: fleet.Show, Key: key})
	for i, v := range values {
		if v != values[0] {
			c.s.t.Errorf("%s: %s has %s, %s has %s", key, names[0], values[0], names[i], v)
		}
	}
	if values[0] == "null" {
		return // nothing was written yet
	}
	if err := json.Unmarshal([]byte(values[0]), into); err != nil {
		c.s.t.Fatalf("%s: %v", key, err)
	}
}

// check compares what some nodes hold with what the clients know.
func (c *crowd) check(names ...string) {
	c.s.t.Helper()
	var n int64
	c.show(names, counter, &n)
	if !c.count.admits(n) {
		c.s.t.Errorf("%s is %d, but %+v was counted", counter, n, c.count)
	}
	of := map[string]int64{}
	c.show(names, counters, &of)
	for i := range clients {
		if n := of[nameOf(i)]; !c.counts[i].admits(n) {
			c.s.t.Errorf("%s of %s is %d, but %+v was counted", nameOf(i), counters, n, c.counts[i])
		}
		var elements []string
		c.show(names, setOf(i), &elements)
		is := map[string]bool{}
		for _, e := range elements {
			if is[e] = true; c.sets[i][e] == nil {
				c.s.t.Errorf("%s has %s, which nobody has added", setOf(i), e)
			}
		}
		for e, f := range c.sets[i] {
			if f.added && !f.touched && !is[e] || f.removed && is[e] {
				c.s.t.Errorf("%s: %s is there: %v, but %+v", setOf(i), e, is[e], *f)
			}
		}
	}
}
