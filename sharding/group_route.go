// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/inbox"
	"github.com/refold-io/refold/internal/shardcore/groups"
	"github.com/refold-io/refold/internal/wire"
	"github.com/refold-io/refold/transport"
)

// counter counts the uses of a route.
type counter = atomic.Uint64

// openAsks counts the asks of this node that wait for an instance, and what the instance reported.
type openAsks struct {
	mu   sync.Mutex
	at   map[placeOf]int
	last map[placeOf]int
}

// placeOf is an instance on a node.
type placeOf struct {
	node identity.Node
	nr   int
}

func (o *openAsks) add(p placeOf, n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.at == nil {
		o.at, o.last = map[placeOf]int{}, map[placeOf]int{}
	}
	if o.at[p] += n; o.at[p] == 0 {
		delete(o.at, p)
	}
}

func (o *openAsks) report(p placeOf, pending int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last[p] = pending
}

// keep forgets the reports of all other instances.
func (o *openAsks) keep(places map[placeOf]bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for p := range o.last { // the order does not matter
		if !places[p] {
			delete(o.last, p)
		}
	}
}

func (o *openAsks) load(p placeOf) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return max(o.at[p], o.last[p])
}

type routeKind uint8

const (
	routeAny routeKind = iota
	routeLeast
	routeKey
	routeNr
)

// Route is a way to choose an instance. Routes are values; their methods are safe for concurrent
// use.
type Route struct {
	ref  *GroupRef
	kind routeKind
	arg  uint64
}

// Ask sends a request to an instance and waits for the reply. The payload must not be modified
// afterwards. Ask waits until an instance is found or ctx ends. Any and LeastLoaded try another
// instance if the first one is not there or is busy.
//
// After cluster.ErrNotHosted and cluster.ErrBusy the request was certainly not handled. After all
// other errors the request may have been handled: cluster.ErrRefused, the errors of
// transport.Transport.Request, the error of ctx, and ErrStopped.
func (t Route) Ask(ctx context.Context, payload []byte) ([]byte, error) {
	reply := t.ask(ctx, payload)
	return reply.Payload, reply.Err
}

func (t Route) wrap(err error) error {
	return fmt.Errorf("sharding: ask group %q: %w", t.ref.group.Name, err)
}

func (t Route) ask(ctx context.Context, payload []byte) GroupReply {
	s := t.ref.shell
	tried := map[int]error{}
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		table, changed := s.current()
		at, found := t.choose(table, tried)
		if !found && len(tried) > 0 && t.other() { // all instances were tried
			for _, err := range tried { // busy, if one of them is
				if errors.Is(err, cluster.ErrBusy) {
					return GroupReply{Err: t.wrap(err)}
				}
			}
			clear(tried)
		}
		var failed error
		if found {
			reply := t.request(ctx, at, payload)
			switch failed = reply.Err; {
			case errors.Is(failed, cluster.ErrNotHosted), errors.Is(failed, cluster.ErrBusy) && t.other():
				tried[at.nr] = failed
			default:
				if failed != nil {
					reply.Err = t.wrap(failed)
				}
				return reply
			}
			if t.other() {
				continue
			}
		}
		if err := s.pause(ctx, changed, pause); err != nil {
			return GroupReply{Err: t.wrap(fmt.Errorf("no instance was found: %w: %w", cmp.Or(failed, cluster.ErrNotHosted), err))}
		}
	}
}

// other reports whether the route may choose another instance.
func (t Route) other() bool { return t.kind == routeAny || t.kind == routeLeast }

func (t Route) request(ctx context.Context, at placeOf, payload []byte) GroupReply {
	r := t.ref
	r.open.add(at, 1)
	defer r.open.add(at, -1)
	reply := GroupReply{Nr: at.nr, Node: at.node}
	b, err := r.shell.node.Transport().Request(ctx, at.node, kindGroup, appendGroupMessage(r, at.nr, 0, payload))
	if err != nil {
		reply.Err = err
		return reply
	}
	var pending int
	reply.Payload, pending, reply.Err = groupResult(at.node, b)
	if reply.Err == nil {
		r.open.report(at, pending)
	}
	return reply
}

// Send sends a message to an instance, at most once. The payload must not be modified afterwards.
// Messages of one goroutine to one instance arrive in order while the instance does not move. A nil
// error means that the message was sent, not that it was delivered. The error matches
// cluster.ErrNotHosted if no node runs the instance, or is an error of transport.Transport.Send.
func (t Route) Send(payload []byte) error {
	table, _ := t.ref.shell.current()
	at, found := t.choose(table, nil)
	err := cluster.ErrNotHosted
	if found {
		err = t.ref.shell.node.Transport().Send(at.node, transport.Data, kindGroup, appendGroupMessage(t.ref, at.nr, 0, payload))
	}
	if err != nil {
		return fmt.Errorf("sharding: send to group %q: %w", t.ref.group.Name, err)
	}
	return nil
}

// choose returns an instance that was not tried.
func (t Route) choose(table *groups.Table, tried map[int]error) (placeOf, bool) {
	g := table.Find(t.ref.group.Name)
	if g == nil {
		return placeOf{}, false
	}
	count := min(g.Count, len(g.Slots))
	place := func(nr int) (placeOf, bool) {
		n := g.Slots[nr].Node
		return placeOf{n, nr}, !n.IsZero() && tried[nr] == nil
	}
	switch {
	case count == 0:
	case t.kind == routeNr && t.arg < uint64(count): //nolint:gosec // not negative
		n := g.Slots[t.arg].Node
		return placeOf{n, int(t.arg)}, !n.IsZero() //nolint:gosec // less than count
	case t.kind == routeKey:
		nr := rendezvous(t.arg, count)
		n := g.Slots[nr].Node
		return placeOf{n, nr}, !n.IsZero()
	case t.other():
		start := int(t.ref.turn.Add(1) % uint64(count)) //nolint:gosec // count is positive
		var best placeOf
		least := math.MaxInt
		for i := range count {
			at, ok := place((start + i) % count)
			switch {
			case !ok:
			case t.kind == routeAny:
				return at, true
			default:
				if load := t.ref.open.load(at); load < least {
					best, least = at, load
				}
			}
		}
		return best, least < math.MaxInt
	}
	return placeOf{}, false
}

// rendezvous returns the number below count with the highest hash of the number and the key.
func rendezvous(key uint64, count int) (best int) {
	var most uint64
	for nr := range count {
		h := key<<32 | uint64(nr)
		for range 2 {
			h = (h ^ h>>33) * 0xff51afd7ed558ccd
		}
		if h ^= h >> 33; h >= most {
			best, most = nr, h
		}
	}
	return best
}

// AskAll sends a request to all instances and waits for their replies, in the order of their
// numbers. The payload must not be modified afterwards.
func (r *GroupRef) AskAll(ctx context.Context, payload []byte) []GroupReply {
	table, _ := r.shell.current()
	g := table.Find(r.group.Name)
	if g == nil {
		return nil
	}
	replies := make([]GroupReply, min(g.Count, len(g.Slots)))
	var all sync.WaitGroup
	for nr := range replies {
		all.Go(func() {
			replies[nr] = r.Instance(nr).ask(ctx, payload)
			replies[nr].Nr = nr
		})
	}
	all.Wait()
	return replies
}

// SendAll sends a message to all instances, at most once each. The payload must not be modified
// afterwards. The error joins those of Route.Send.
func (r *GroupRef) SendAll(payload []byte) error {
	table, _ := r.shell.current()
	g := table.Find(r.group.Name)
	if g == nil {
		return fmt.Errorf("sharding: send to group %q: %w", r.group.Name, cluster.ErrNotHosted)
	}
	var errs []error
	for nr := range min(g.Count, len(g.Slots)) {
		errs = append(errs, r.Instance(nr).Send(payload))
	}
	return errors.Join(errs...)
}

// maxHops is how many nodes forward a message to an instance that has moved.
const maxHops = 3

// groupMessage is a message for an instance.
type groupMessage struct {
	hops        byte
	role, group string
	nr          int
	payload     []byte
}

func appendGroupMessage(r *GroupRef, nr int, hops byte, payload []byte) []byte {
	return (&groupMessage{hops, r.group.Role, r.group.Name, nr, payload}).encode()
}

func (m *groupMessage) encode() []byte {
	dst := make([]byte, 0, len(m.role)+len(m.group)+len(m.payload)+16)
	dst = append(dst, wireVersion, m.hops)
	for _, s := range []string{m.role, m.group} {
		dst = append(binary.AppendUvarint(dst, uint64(len(s))), s...)
	}
	return append(binary.AppendUvarint(dst, uint64(m.nr)), m.payload...) //nolint:gosec // not negative
}

// decodeGroupMessage decodes a message. The payload shares the memory of b. The error matches
// errMalformed.
func decodeGroupMessage(b []byte) (m groupMessage, err error) {
	r := wire.NewReader(b, wireVersion, maxPayload, errMalformed)
	m.hops = r.Byte("hops")
	m.role, m.group = string(r.Text(maxRole, "role")), string(r.Text(groups.MaxName, "group"))
	m.nr = int(r.Uint(groups.MaxInstances-1, "instance")) //nolint:gosec // limited
	m.payload = r.Rest()
	if r.Err() != nil {
		return groupMessage{}, r.Err()
	}
	return m, nil
}

// groupResult decodes the reply of an instance.
func groupResult(from identity.Node, b []byte) (payload []byte, pending int, err error) {
	if len(b) == 0 {
		return nil, 0, fmt.Errorf("on %v: %w reply", from, errMalformed)
	}
	switch b[0] {
	case inbox.Answered:
		r := wire.NewFields(b[1:], errMalformed)
		pending = int(r.Uint(math.MaxInt32, "pending messages")) //nolint:gosec // limited
		if r.Err() != nil {
			return nil, 0, fmt.Errorf("on %v: %w", from, r.Err())
		}
		return r.Rest(), pending, nil
	case inbox.NotHosted:
		return nil, 0, fmt.Errorf("on %v: %w", from, cluster.ErrNotHosted)
	case inbox.Busy:
		return nil, 0, fmt.Errorf("on %v: %w", from, cluster.ErrBusy)
	}
	return nil, 0, fmt.Errorf("on %v: %w: %s", from, cluster.ErrRefused, b[1:])
}
