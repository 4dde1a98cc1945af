// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package otel

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/ddata"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/projection"
	"github.com/refold-io/refold/sharding"
	"github.com/refold-io/refold/transport"
)

const (
	nodeKey       = attribute.Key("refold.node.name")
	statusKey     = attribute.Key("refold.member.status")
	dropReasonKey = attribute.Key("refold.drop.reason")
	operationKey  = attribute.Key("refold.operation")
	messageKey    = attribute.Key("refold.message.kind")
	laneKey       = attribute.Key("refold.transport.lane")
	singletonKey  = attribute.Key("refold.singleton.name")
	phaseKey      = attribute.Key("refold.shutdown.phase")
	replicatorKey = attribute.Key("refold.replicator.name")
	projectionKey = attribute.Key("refold.projection.name")
	stateKey      = attribute.Key("refold.projection.state")
	directionKey  = attribute.Key("network.io.direction")
)

// collectTimeout limits the calls of all sources in one collection. Prometheus waits for 10 s.
const collectTimeout = 5 * time.Second

// sources are the objects whose figures are read at each collection.
type sources struct {
	mu          sync.Mutex
	runtimes    []*eventsourcing.Runtime
	nodes       []*cluster.Node
	projections []watchedProjection

	runtime    table[*eventsourcing.Runtime]
	node       table[*cluster.Node]
	member     table[member]
	transport  table[*transport.Stats]
	region     table[*sharding.Stats]
	replicator table[*ddata.Stats]
	projection table[*projection.Status]
}

type watchedProjection struct {
	name string
	of   interface{ Status() projection.Status }
}

// member is a node as a member of its cluster.
type member struct {
	state *cluster.State
	stats *cluster.Stats
}

// kind is the kind of an asynchronous instrument.
type kind uint8

const (
	counter       kind = iota // a sum since the start
	updowncounter             // a number that can be added over processes
	gauge                     // another value
)

// put adds a value of a row.
type put func(value float64, attributes ...attribute.KeyValue)

// row describes an asynchronous instrument. Its values come from a source S. Only a gauge in seconds
// has fractions.
type row[S any] struct {
	name        string
	kind        kind
	unit        string
	description string
	read        func(s S, put put)
}

// table holds the instruments of the rows of a source.
type table[S any] struct {
	rows        []row[S]
	instruments []metric.Observable
}

// create creates the instruments and returns them.
func (t *table[S]) create(meter metric.Meter, rows []row[S]) ([]metric.Observable, error) {
	t.rows = rows
	var errs []error
	for i := range rows {
		r := &rows[i]
		var o metric.Observable
		var err error
		unit, description := metric.WithUnit(r.unit), metric.WithDescription(r.description)
		switch {
		case r.kind == gauge && r.unit == "s":
			o, err = meter.Float64ObservableGauge(r.name, unit, description)
		case r.kind == gauge:
			o, err = meter.Int64ObservableGauge(r.name, unit, description)
		case r.kind == counter:
			o, err = meter.Int64ObservableCounter(r.name, unit, description)
		default:
			o, err = meter.Int64ObservableUpDownCounter(r.name, unit, description)
		}
		t.instruments = append(t.instruments, o)
		errs = append(errs, err)
	}
	return t.instruments, errors.Join(errs...)
}

// observe reads all rows of a source. The base attributes are added to those of each value.
func (t *table[S]) observe(o metric.Observer, s S, base ...attribute.KeyValue) {
	for i := range t.rows {
		t.rows[i].read(s, func(value float64, attributes ...attribute.KeyValue) {
			set := metric.WithAttributes(slices.Concat(base, attributes)...)
			switch instrument := t.instruments[i].(type) {
			case metric.Float64Observable:
				o.ObserveFloat64(instrument, value, set)
			case metric.Int64Observable:
				o.ObserveInt64(instrument, int64(value), set)
			}
		})
	}
}

func (s *sources) create(meter metric.Meter) (metric.Registration, error) {
	var all []metric.Observable
	var errs []error
	add := func(created []metric.Observable, err error) { all, errs = append(all, created...), append(errs, err) }
	add(s.runtime.create(meter, runtimeRows()))
	add(s.node.create(meter, nodeRows()))
	add(s.member.create(meter, memberRows()))
	add(s.transport.create(meter, transportRows()))
	add(s.region.create(meter, regionRows()))
	add(s.replicator.create(meter, replicatorRows()))
	add(s.projection.create(meter, projectionRows()))
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return meter.RegisterCallback(s.observe, all...)
}

// observe runs at each collection. A source that has ended or does not respond in time has no values
// in this collection.
func (s *sources) observe(ctx context.Context, o metric.Observer) error {
	ctx, cancel := context.WithTimeout(ctx, collectTimeout)
	defer cancel()
	s.mu.Lock()
	runtimes, nodes, projections := slices.Clone(s.runtimes), slices.Clone(s.nodes), slices.Clone(s.projections)
	s.mu.Unlock()
	for _, rt := range runtimes {
		s.runtime.observe(o, rt)
	}
	for _, n := range nodes {
		s.observeNode(ctx, o, n)
	}
	for _, p := range projections {
		status := p.of.Status()
		s.projection.observe(o, &status, projectionKey.String(p.name))
	}
	return nil
}

func (s *sources) observeNode(ctx context.Context, o metric.Observer, n *cluster.Node) {
	name := nodeKey.String(n.Self().Name)
	s.node.observe(o, n, name)
	stats, err := n.Stats(ctx)
	if err != nil {
		return // the node has ended
	}
	s.member.observe(o, member{n.State(), &stats}, name)
	s.transport.observe(o, &stats.Transport, name)
	if regions, err := sharding.StatsOf(ctx, n); err == nil {
		for i := range regions {
			s.region.observe(o, &regions[i], name, entityTypeKey.String(regions[i].Type))
		}
	}
	if replicators, err := ddata.StatsOf(ctx, n); err == nil {
		for i := range replicators {
			s.replicator.observe(o, &replicators[i], name, replicatorKey.String(replicators[i].Replicator))
		}
	}
}

// watch adds a source to a list. The result removes it.
func watch[S comparable](mu *sync.Mutex, list *[]S, source S) (stop func()) {
	mu.Lock()
	defer mu.Unlock()
	*list = append(*list, source)
	return sync.OnceFunc(func() {
		mu.Lock()
		defer mu.Unlock()
		if i := slices.Index(*list, source); i >= 0 {
			*list = slices.Delete(*list, i, i+1)
		}
	})
}

// one returns 1 for true and 0 for false.
func one(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// each puts the counts of a map.
func each(counts map[string]uint64, put put, key attribute.Key, more ...attribute.KeyValue) {
	for name, n := range counts { // the order does not matter
		put(float64(n), append([]attribute.KeyValue{key.String(name)}, more...)...)
	}
}

// value returns the read function of a row with one value.
func value[S any, N int | uint64 | uint32](of func(S) N) func(S, put) {
	return func(s S, put put) { put(float64(of(s))) }
}

// flag returns the read function of a row with the value 0 or 1.
func flag[S any](of func(S) bool) func(S, put) {
	return func(s S, put put) { put(one(of(s))) }
}

func runtimeRows() []row[*eventsourcing.Runtime] {
	type rt = *eventsourcing.Runtime
	return []row[rt]{
		{"refold.entity.resident", updowncounter, "{entity}", "Entities in memory.", func(r rt, put put) {
			for name, n := range r.Resident() { // the order does not matter
				put(float64(n), entityTypeKey.String(name))
			}
		}},
		{"refold.journal.breaker.open", updowncounter, "{breaker}", "Journals whose circuit breaker is open.", value(rt.OpenBreakers)},
	}
}

func nodeRows() []row[*cluster.Node] {
	return []row[*cluster.Node]{
		{"refold.cluster.node.ready", updowncounter, "{node}", "1 if the node can serve requests, otherwise 0.", flag(func(n *cluster.Node) bool { return n.Ready() == nil })},
	}
}

func memberRows() []row[member] {
	return []row[member]{
		{"refold.cluster.node.disconnected", updowncounter, "{node}", "1 if the node does not receive its own heartbeats, otherwise 0.", flag(func(m member) bool { return !m.state.Connected })},
		{"refold.cluster.node.suspended", updowncounter, "{node}", "1 if the node must not host singletons and shards, otherwise 0.", flag(func(m member) bool { return m.state.Suspended })},
		{"refold.cluster.member.count", gauge, "{member}", "Members by status, as this node sees them.", func(m member, put put) {
			counts := map[string]uint64{cluster.Up.String(): 0}
			for _, other := range m.state.Members {
				counts[other.Status.String()]++
			}
			each(counts, put, statusKey)
		}},
		{"refold.cluster.member.unreachable", gauge, "{member}", "Other members that at least one member finds unreachable.", value(func(m member) int { return len(m.state.Unreachable) })},
		{"refold.cluster.member.changes", counter, "{change}", "Changes of the status of members, by the new status.", func(m member, put put) { each(m.stats.Membership.Became, put, statusKey) }},
		{"refold.cluster.downing.decisions", counter, "{decision}", "Decisions of the downing strategy.", value(func(m member) uint64 { return m.stats.Decisions })},
		{"refold.cluster.messages", counter, "{message}", "Messages of the membership protocol.", func(m member, put put) {
			each(m.stats.Membership.Sent, put, messageKey, directionKey.String("transmit"))
			each(m.stats.Membership.Received, put, messageKey, directionKey.String("receive"))
		}},
		{"refold.cluster.message.ignored", counter, "{message}", "Messages of the membership protocol that were not handled.", func(m member, put put) { each(m.stats.Membership.Dropped, put, dropReasonKey) }},
		{"refold.cluster.message.timeouts", counter, "{timeout}", "Time-outs of the membership protocol, by operation.", func(m member, put put) { each(m.stats.Membership.TimedOut, put, operationKey) }},
		{"refold.cluster.message.dropped", counter, "{message}", "Messages that were dropped by the node or its singletons.", func(m member, put put) {
			for reason, n := range m.stats.Dropped {
				put(float64(n), dropReasonKey.String(cluster.DropReason(reason).String()))
			}
		}},
		{"refold.cluster.event.lagged", counter, "{event}", "Replacements of events by a snapshot for a slow subscriber.", value(func(m member) uint64 { return m.stats.Lagged })},
		{"refold.cluster.lease.operations", counter, "{operation}", "Results of lease operations.", func(m member, put put) {
			put(float64(m.stats.LeasesHeld), outcomeKey.String("held"))
			put(float64(m.stats.LeasesNotHeld), outcomeKey.String("not held"))
			put(float64(m.stats.LeasesLost), outcomeKey.String("lost"))
		}},
		{"refold.cluster.admin.denied", counter, "{request}", "Requests of operators that the node refused.", value(func(m member) uint64 { return m.stats.AdminDenied })},
	}
}

// lanes returns the read function of a row with a value per lane.
func lanes(of func(*transport.LaneStats, put)) func(*transport.Stats, put) {
	return func(s *transport.Stats, out put) {
		for lane := range s.Lanes {
			name := laneKey.String(transport.Lane(lane).String())
			of(&s.Lanes[lane], func(value float64, attributes ...attribute.KeyValue) {
				out(value, append(attributes, name)...)
			})
		}
	}
}

// directions returns the read function of a row with two values per lane.
func directions(of func(*transport.LaneStats) (out, in uint64)) func(*transport.Stats, put) {
	return lanes(func(l *transport.LaneStats, put put) {
		out, in := of(l)
		put(float64(out), directionKey.String("transmit"))
		put(float64(in), directionKey.String("receive"))
	})
}

func transportRows() []row[*transport.Stats] {
	type stats = *transport.Stats
	type lane = *transport.LaneStats
	return []row[stats]{
		{"refold.transport.frames", counter, "{frame}", "Frames between this node and other nodes.", directions(func(l lane) (out, in uint64) { return l.FramesOut, l.FramesIn })},
		{"refold.transport.messages", counter, "{message}", "Messages between this node and other nodes.", directions(func(l lane) (out, in uint64) { return l.MessagesOut, l.MessagesIn })},
		{"refold.transport.io", counter, "By", "Bytes between this node and other nodes.", directions(func(l lane) (out, in uint64) { return l.BytesOut, l.BytesIn })},
		{"refold.transport.frame.lost", counter, "{frame}", "Frames that are missing in the sequence of a lane.", lanes(value(func(l lane) uint64 { return l.Lost }))},
		{"refold.transport.stalls", counter, "{stall}", "Times that a link ran out of credit.", lanes(value(func(l lane) uint64 { return l.Stalls }))},
		{"refold.transport.queue.size", updowncounter, "By", "Bytes that wait to be sent.", lanes(value(func(l lane) int { return l.Queued }))},
		{"refold.transport.inbox.size", updowncounter, "By", "Bytes that were received and not yet consumed.", lanes(value(func(l lane) int { return l.Held }))},
		{"refold.transport.message.dropped", counter, "{message}", "Frames and messages that were dropped.", func(s stats, put put) {
			for reason := transport.Reason(1); reason < transport.Reasons; reason++ {
				put(float64(s.Dropped[reason]), dropReasonKey.String(reason.String()))
			}
		}},
		{"refold.transport.message.refused", counter, "{message}", "Messages that were refused because a send queue was full.", value(func(s stats) uint64 { return s.Refused })},
		{"refold.transport.event.lost", counter, "{event}", "Events of the transport that were dropped because their handler was too slow.", value(func(s stats) uint64 { return s.EventsLost })},
		{"refold.transport.compression.saved", counter, "By", "Bytes that compression has saved.", value(func(s stats) uint64 { return s.Saved })},
		{"refold.transport.memory.usage", updowncounter, "By", "Bytes of the memory budget in use.", value(func(s stats) int { return s.Memory })},
		{"refold.transport.peer.count", updowncounter, "{node}", "Other nodes with links to this node.", value(func(s stats) int { return s.Peers })},
		{"refold.transport.request.open", updowncounter, "{request}", "Requests to other nodes without a reply.", value(func(s stats) int { return s.Requests })},
		{"refold.transport.admin.requests", counter, "{request}", "Requests of operators, by whether the transport accepted them.", func(s stats, put put) {
			put(float64(s.AdminRequests-min(s.AdminRefused, s.AdminRequests)), outcomeKey.String(outcomeOK))
			put(float64(s.AdminRefused), outcomeKey.String(outcomeRefused))
		}},
	}
}

// placed returns the read function of a row with a value of the coordinator, if the node runs it.
func placed(of func(*sharding.AdminCoordinator) int) func(*sharding.Stats, put) {
	return func(s *sharding.Stats, put put) {
		if s.Coordinator != nil {
			put(float64(of(s.Coordinator)))
		}
	}
}

func regionRows() []row[*sharding.Stats] {
	type stats = *sharding.Stats
	type coordinator = *sharding.AdminCoordinator
	return []row[stats]{
		{"refold.sharding.region.registered", updowncounter, "{region}", "1 if the region or proxy is registered with a coordinator, otherwise 0.", flag(func(s stats) bool { return s.Registered })},
		{"refold.sharding.shard.hosted", updowncounter, "{shard}", "Shards that the node hosts.", value(func(s stats) int { return s.Shards })},
		{"refold.sharding.entity.running", updowncounter, "{entity}", "Running and starting entities of the hosted shards.", value(func(s stats) int { return s.Entities })},
		{"refold.sharding.standby.prepared", updowncounter, "{entity}", "States that the node keeps as a standby.", value(func(s stats) int { return s.Prepared })},
		{"refold.sharding.command.waiting", updowncounter, "{command}", "Commands that wait for homes, shards or entities.", value(func(s stats) int { return s.Waiting })},
		{"refold.sharding.command.queued", counter, "{command}", "Commands that went through the queue of the region.", value(func(s stats) uint64 { return s.Queued })},
		{"refold.sharding.command.dropped", counter, "{command}", "Commands that were not delivered.", value(func(s stats) uint64 { return s.Dropped })},
		{"refold.sharding.command.unanswered", counter, "{command}", "Callers that stopped waiting before the reply of another node.", value(func(s stats) uint64 { return s.Unanswered })},
		{"refold.sharding.command.refused", counter, "{command}", "Commands that were refused because their sender used up its memory budget.", value(func(s stats) uint64 { return s.OverBudget })},
		{"refold.sharding.shard.handoffs", counter, "{shard}", "Shards that coordinators on this node handed off (ok), or that stayed because a node did not respond (failed).", func(s stats, put put) {
			put(float64(s.HandedOff), outcomeKey.String(outcomeOK))
			put(float64(s.NotHandedOff), outcomeKey.String(outcomeFailed))
		}},
		{"refold.sharding.coordinator.active", updowncounter, "{coordinator}", "1 if the node runs the coordinator of the type and it allocates shards, otherwise 0.", flag(func(s stats) bool {
			return s.Coordinator != nil && s.Coordinator.Phase == "active"
		})},
		{"refold.sharding.shard.placed", updowncounter, "{shard}", "Shards with a home, reported by the node of the coordinator.", placed(func(c coordinator) int { return c.Placed })},
		{"refold.sharding.shard.moving", updowncounter, "{shard}", "Shards in a hand-off, reported by the node of the coordinator.", placed(func(c coordinator) int { return c.Moving })},
		{"refold.sharding.region.rejected", updowncounter, "{region}", "Regions that the coordinator rejects because their settings differ.", placed(func(c coordinator) int { return c.Refused })},
	}
}

func replicatorRows() []row[*ddata.Stats] {
	type stats = *ddata.Stats
	return []row[stats]{
		{"refold.ddata.key.count", gauge, "{key}", "Keys of the replicator on this node.", value(func(s stats) int { return s.Protocol.Keys })},
		{"refold.ddata.key.deleted", gauge, "{key}", "Records of deleted keys.", value(func(s stats) int { return s.Protocol.Tombstones })},
		{"refold.ddata.key.expired", counter, "{key}", "Keys that have expired.", value(func(s stats) uint64 { return s.Protocol.Expired })},
		{"refold.ddata.replica.count", gauge, "{node}", "Nodes that count in a quorum.", value(func(s stats) int { return s.Replicas })},
		{"refold.ddata.replica.synced", updowncounter, "{node}", "1 if the node has fetched the data of the other nodes, otherwise 0.", flag(func(s stats) bool { return s.Synced })},
		{"refold.ddata.subscriber.count", updowncounter, "{subscriber}", "Running loops of Subscribe.", value(func(s stats) int { return s.Subscribers })},
		{"refold.ddata.request.open", updowncounter, "{request}", "Requests that wait for other nodes.", value(func(s stats) int { return s.Protocol.Open })},
		{"refold.ddata.requests", counter, "{request}", "Requests that have ended, by result.", func(s stats, put put) { each(s.Protocol.Outcomes, put, outcomeKey) }},
		{"refold.ddata.request.second_waves", counter, "{request}", "Requests that were also sent to further nodes because the first nodes were late.", value(func(s stats) uint64 { return s.Protocol.SecondWaves })},
		{"refold.ddata.messages", counter, "{message}", "Messages of the replication protocol.", func(s stats, put put) {
			each(s.Protocol.Sent, put, messageKey, directionKey.String("transmit"))
			each(s.Protocol.Received, put, messageKey, directionKey.String("receive"))
		}},
		{"refold.ddata.io", counter, "By", "Sent bytes of the replication protocol.", func(s stats, put put) { each(s.Protocol.SentBytes, put, messageKey) }},
		{"refold.ddata.message.dropped", counter, "{message}", "Messages that were dropped, malformed or not accepted by the transport.", func(s stats, put put) {
			each(s.Protocol.Dropped, put, dropReasonKey)
			put(float64(s.Malformed), dropReasonKey.String("malformed"))
			put(float64(s.Unsent), dropReasonKey.String("unsent"))
		}},
		{"refold.ddata.deltas", counter, "{delta}", "Deltas of other nodes: merged (ok), known before, or after a gap.", func(s stats, put put) {
			put(float64(s.Protocol.DeltasApplied), outcomeKey.String(outcomeOK))
			put(float64(s.Protocol.DeltasKnown), outcomeKey.String("known"))
			put(float64(s.Protocol.DeltasGap), outcomeKey.String("gap"))
		}},
		{"refold.ddata.delta.waiting", updowncounter, "{delta}", "Changes that wait to be sent.", value(func(s stats) int { return s.Protocol.Log })},
		{"refold.ddata.delta.dropped", counter, "{delta}", "Changes that were dropped because the log was full.", value(func(s stats) uint64 { return s.Protocol.DeltasDropped })},
		{"refold.ddata.comparisons", counter, "{comparison}", "Comparisons of all data with another node: equal or different.", func(s stats, put put) {
			put(float64(s.Protocol.Equal), outcomeKey.String("equal"))
			put(float64(s.Protocol.Compared-min(s.Protocol.Equal, s.Protocol.Compared)), outcomeKey.String("different"))
		}},
		{"refold.ddata.disk.writes", counter, "{write}", "Calls of the store of durable keys.", func(s stats, put put) {
			put(float64(s.DiskWrites-min(s.DiskErrors, s.DiskWrites)), outcomeKey.String(outcomeOK))
			put(float64(s.DiskErrors), outcomeKey.String(outcomeFailed))
		}},
		{"refold.ddata.disk.waiting", updowncounter, "{record}", "Records that wait to be written.", value(func(s stats) int { return s.Waiting })},
	}
}

func projectionRows() []row[*projection.Status] {
	type status = *projection.Status
	return []row[status]{
		{"refold.projection.lag", gauge, "s", "Largest age of an event that was read and is not handled.", func(s status, put put) { put(s.Lag.Seconds()) }},
		{"refold.projection.lag_unknown", gauge, "s", "Time since the lag of a worker is unknown, 0 while it is known.", func(s status, put put) {
			if s.LagUnknownSince.IsZero() {
				put(0)
			} else {
				put(time.Since(s.LagUnknownSince).Seconds())
			}
		}},
		{"refold.projection.caught_up", updowncounter, "{projection}", "1 if all workers have handled all events, otherwise 0.", flag(func(s status) bool { return s.CaughtUp })},
		{"refold.projection.failures", gauge, "{failure}", "Largest number of consecutive failures of a worker.", value(func(s status) int { return s.Failures })},
		{"refold.projection.worker.count", updowncounter, "{worker}", "Workers by state.", func(s status, put put) {
			counts := map[string]uint64{projection.Running.String(): 0}
			for i := range s.Workers {
				counts[s.Workers[i].State.String()]++
			}
			each(counts, put, stateKey)
		}},
		{"refold.projection.event.handled", counter, "{event}", "Events that were handled.", value(func(s status) uint64 { return s.Handled })},
		{"refold.projection.event.skipped", counter, "{event}", "Events that were skipped.", value(func(s status) uint64 { return s.Skipped })},
		{"refold.projection.event.retries", counter, "{attempt}", "Repeated attempts at an event.", value(func(s status) uint64 { return s.Retries })},
		{"refold.projection.worker.restarts", counter, "{restart}", "Restarts of workers.", value(func(s status) uint64 { return s.Restarts })},
	}
}
