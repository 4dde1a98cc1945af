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
)

const (
	clients = 8
	// answerTimeout is the time-out of a request.
	answerTimeout = 3 * time.Second
	counter       = "counter"
	counters      = "counters"
)

// crowd is a set of clients that change data on the nodes of a scene. Each client sends one request
// at a time. The crowd records the expected data.
type crowd struct {
	s    *scene
	rand *rand.Rand
	// local allows requests that only one node acknowledges.
	local bool

	resting bool
	last    uint64
	open    map[uint64]*asked
	answers map[uint64]*answer // answers to requests that no client has sent
	acked   int                // acknowledged changes
	why     map[string]int     // the number of each error

	count  tally
	counts [clients]tally
	sets   [clients]map[string]*fate
	names  int
}

// asked is a request that has no answer yet.
type asked struct {
	client  int // -1 for none
	node    string
	request request
}

// tally holds two sums of additions: the acknowledged additions, and the additions with an unknown
// outcome.
type tally struct{ certain, perhaps int64 }

// fate records the acknowledged and the attempted changes of an element.
type fate struct{ added, touched, removed bool }

func newCrowd(s *scene, seed uint64) *crowd {
	c := &crowd{s: s, rand: rand.New(rand.NewPCG(seed, 5)), resting: true, open: map[uint64]*asked{}, answers: map[uint64]*answer{}, why: map[string]int{}}
	for i := range c.sets {
		c.sets[i] = map[string]*fate{}
	}
	s.crowd = c
	return c
}

// setOf returns the key of the set of a client.
func setOf(client int) string { return fmt.Sprintf("set-%d", client) }

// nameOf returns the name of the counter of a client in the map.
func nameOf(client int) string { return fmt.Sprintf("client-%d", client) }

// resume starts the clients.
func (c *crowd) resume() {
	c.resting = false
	for i := range clients {
		c.work(i)
	}
}

// rest stops the clients and waits for the answers to their requests.
func (c *crowd) rest() {
	c.s.t.Helper()
	c.resting = true
	c.s.until("all clients have an answer", func() bool { return len(c.open) == 0 })
}

// nodes returns the nodes that are Up in their own view.
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

// work sends the next request of a client to any node.
func (c *crowd) work(client int) {
	if c.resting {
		return
	}
	nodes := c.nodes()
	c.rand.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
	r := c.next(client)
	for _, name := range nodes {
		if c.ask(client, name, r) {
			return
		}
	}
}

// ask sends a request to a node, and reports whether the node is running.
func (c *crowd) ask(client int, node string, r request) bool {
	c.last++
	r.ID, r.Timeout = c.last, answerTimeout
	if c.s.fleet.Send(node, r) != nil {
		return false
	}
	c.open[c.last] = &asked{client, node, r}
	return true
}

// next returns the next request of a client.
func (c *crowd) next(client int) request {
	local := c.local && c.rand.IntN(2) == 0
	switch c.rand.IntN(4) {
	case 0:
		return request{Do: opCount, Key: counter, N: 1 + c.rand.Int64N(9), Local: local}
	case 1:
		return request{Do: opCountIn, Key: counters, Name: nameOf(client), N: 1 + c.rand.Int64N(9), Local: local}
	case 2:
		var there []string
		for name, f := range c.sets[client] {
			if f.added && !f.touched {
				there = append(there, name)
			}
		}
		if len(there) > 3 {
			slices.Sort(there)
			return request{Do: opRemove, Key: setOf(client), Name: there[c.rand.IntN(len(there))], Local: local}
		}
	}
	c.names++
	return request{Do: opAdd, Key: setOf(client), Name: fmt.Sprint(c.names), Local: local}
}

// take processes an answer.
func (c *crowd) take(a *answer) {
	o := c.open[a.ID]
	delete(c.open, a.ID)
	if o.client < 0 {
		c.answers[a.ID] = a
		return
	}
	c.settle(o, a.Error == "", a.Unknown)
	if a.Error != "" {
		_, why, _ := strings.Cut(a.Error, `": `) // the cause follows the key
		c.why[why]++
	}
	c.work(o.client)
}

// lose records that a process has exited and will not answer.
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

// settle records the outcome of a change.
func (c *crowd) settle(o *asked, done, perhaps bool) {
	if done {
		c.acked++
	} else if !perhaps {
		return
	}
	r := &o.request
	switch r.Do {
	case opCount:
		c.count.add(r.N, done)
	case opCountIn:
		c.counts[o.client].add(r.N, done)
	case opAdd:
		c.sets[o.client][r.Name] = &fate{added: done}
	case opRemove:
		f := c.sets[o.client][r.Name]
		f.touched, f.removed = true, done
	case opShow, opDigest:
	}
}

func (t *tally) add(n int64, certain bool) {
	if certain {
		t.certain += n
	} else {
		t.perhaps += n
	}
}

// admits reports whether the value of a counter is possible after the additions of the tally.
func (t *tally) admits(n int64) bool { return t.certain <= n && n <= t.certain+t.perhaps }

// until waits until the given number of additional changes is acknowledged.
func (c *crowd) until(more int) {
	c.s.t.Helper()
	least := c.acked + more
	c.s.until(fmt.Sprintf("%d changes are acknowledged", least), func() bool { return c.acked >= least })
}

// query sends the same request to all nodes and returns the answers. It repeats the request if a
// node is too busy to answer in time.
func (c *crowd) query(names []string, r request) []string {
	c.s.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		out, why := c.queryOnce(names, r)
		if why == "" {
			return out
		}
		if time.Now().After(deadline) {
			c.s.t.Fatal(why)
		}
	}
}

// queryOnce sends the request to each node once. It returns the error of a node that fails.
func (c *crowd) queryOnce(names []string, r request) (out []string, why string) {
	c.s.t.Helper()
	ids := make([]uint64, len(names))
	for i, name := range names {
		if !c.ask(-1, name, r) {
			c.s.t.Fatalf("query: node %s is not running", name)
		}
		ids[i] = c.last
	}
	c.s.until("all nodes have answered", func() bool { return len(c.open) == 0 })
	out = make([]string, len(names))
	for i, id := range ids {
		a := c.answers[id]
		if a == nil {
			c.s.t.Fatalf("query: node %s has exited without an answer", names[i])
		}
		delete(c.answers, id)
		if out[i] = string(a.Value); a.Error != "" {
			why = fmt.Sprintf("%s: %s %s: %s", names[i], r.Do, r.Key, a.Error)
		}
	}
	return out, why
}

// pollInterval is the interval of polling the nodes.
const pollInterval = 50 * time.Millisecond

// same waits until nodes have equal data.
func (c *crowd) same(names ...string) {
	c.s.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		digests := c.query(names, request{Do: opDigest})
		if len(slices.Compact(slices.Clone(digests))) == 1 {
			return
		}
		if time.Now().After(deadline) {
			c.s.t.Fatalf("after %v the digests of %v are %v, want equal digests", patience, names, digests)
		}
		c.s.during(pollInterval)
	}
}

// show returns the value of a key, which must be equal on all nodes.
func (c *crowd) show(names []string, key string, into any) {
	c.s.t.Helper()
	values := c.query(names, request{Do: opShow, Key: key})
	for i, v := range values {
		if v != values[0] {
			c.s.t.Errorf("%s: the value on %s is %s, on %s it is %s; want equal values", key, names[0], values[0], names[i], v)
		}
	}
	if values[0] == "null" {
		return // no client has written the key so far
	}
	if err := json.Unmarshal([]byte(values[0]), into); err != nil {
		c.s.t.Fatalf("%s: decode the value: %v", key, err)
	}
}

// check compares the data of nodes with the records of the clients.
func (c *crowd) check(names ...string) {
	c.s.t.Helper()
	var n int64
	c.show(names, counter, &n)
	if !c.count.admits(n) {
		c.s.t.Errorf("%s = %d, want %+v", counter, n, c.count)
	}
	of := map[string]int64{}
	c.show(names, counters, &of)
	for i := range clients {
		if n := of[nameOf(i)]; !c.counts[i].admits(n) {
			c.s.t.Errorf("%s of %s = %d, want %+v", nameOf(i), counters, n, c.counts[i])
		}
		var elements []string
		c.show(names, setOf(i), &elements)
		is := map[string]bool{}
		for _, e := range elements {
			if is[e] = true; c.sets[i][e] == nil {
				c.s.t.Errorf("%s contains %s, which no client has added", setOf(i), e)
			}
		}
		for e, f := range c.sets[i] {
			if f.added && !f.touched && !is[e] || f.removed && is[e] {
				c.s.t.Errorf("%s contains %s: %v, want %+v", setOf(i), e, is[e], *f)
			}
		}
	}
}
