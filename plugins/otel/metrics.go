// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package otel

import (
	"context"
	"errors"
	"reflect"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/ddata"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/projection"
)

// instruments are the synchronous instruments; sources.go has the others. docs/observability.md lists
// all of them.
type instruments struct {
	commandDuration  metric.Float64Histogram
	commandStashed   metric.Int64Counter
	commitDuration   metric.Float64Histogram
	commitWrites     metric.Int64Histogram
	commitEvents     metric.Int64Histogram
	commitSize       metric.Int64Histogram
	commitFailed     metric.Int64Counter
	recoveryDuration metric.Float64Histogram
	recoveryEvents   metric.Int64Histogram
	recoveryActive   metric.Int64UpDownCounter
	snapshotDuration metric.Float64Histogram
	snapshotSize     metric.Int64Histogram
	stopped          metric.Int64Counter
	failures         metric.Int64Counter
	fences           metric.Int64Counter
	dropped          metric.Int64Counter
	singletons       metric.Int64UpDownCounter
	shutdownDuration metric.Float64Histogram
	requestDuration  metric.Float64Histogram
	batchDuration    metric.Float64Histogram
	batchEvents      metric.Int64Histogram
}

func (i *instruments) make(meter metric.Meter) error {
	m := maker{meter: meter}
	i.commandDuration = m.seconds("refold.command.duration", "Duration from the submission of a command to its reply.")
	i.commandStashed = m.counter("refold.command.stashed", "{command}", "Commands that waited inside their entity.")
	i.commitDuration = m.seconds("refold.commit.duration", "Duration of a commit of a group of writes by the journal.")
	i.commitWrites = m.counts("refold.commit.writes", "{write}", "Writes in a group.")
	i.commitEvents = m.counts("refold.commit.events", "{event}", "Events in a group of writes.")
	i.commitSize = m.bytes("refold.commit.size", "Size of a group of writes.")
	i.commitFailed = m.counter("refold.commit.failed_writes", "{write}", "Writes that were not stored or have an unknown outcome.")
	i.recoveryDuration = m.seconds("refold.recovery.duration", "Duration of a recovery, including the wait for its start.")
	i.recoveryEvents = m.counts("refold.recovery.events", "{event}", "Events that a recovery replayed.")
	i.snapshotDuration = m.seconds("refold.snapshot.duration", "Duration of saving a snapshot.")
	i.snapshotSize = m.bytes("refold.snapshot.size", "Size of a snapshot.")
	i.stopped = m.counter("refold.entity.stopped", "{entity}", "Entities that stopped and were removed from memory.")
	i.failures = m.counter("refold.entity.failures", "{failure}", "Instances of entities that were dropped because of an error.")
	i.fences = m.counter("refold.entity.fences", "{fence}", "Writes with an unknown outcome that were settled.")
	i.dropped = m.counter("refold.message.dropped", "{message}", "Messages that were not delivered to an entity.")
	i.recoveryActive = m.updown("refold.recovery.active", "{recovery}", "Recoveries in progress.")
	i.singletons = m.updown("refold.cluster.singleton.running", "{instance}", "Running instances of a singleton.")
	i.shutdownDuration = m.seconds("refold.cluster.shutdown.duration", "Duration of a phase of the shutdown.")
	i.requestDuration = m.seconds("refold.ddata.request.duration", "Duration of a request for replicated data.")
	i.batchDuration = m.seconds("refold.projection.batch.duration", "Duration of a call of the handler, including its transaction.")
	i.batchEvents = m.counts("refold.projection.batch.events", "{event}", "Events in a call of the handler.")
	return m.err
}

type maker struct {
	meter metric.Meter
	err   error
}

func (m *maker) seconds(name, description string) metric.Float64Histogram {
	h, err := m.meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(description),
		metric.WithExplicitBucketBoundaries(0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005,
			0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30))
	m.err = errors.Join(m.err, err)
	return h
}

func (m *maker) counts(name, unit, description string) metric.Int64Histogram {
	h, err := m.meter.Int64Histogram(name, metric.WithUnit(unit), metric.WithDescription(description),
		metric.WithExplicitBucketBoundaries(0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 100_000, 1_000_000))
	m.err = errors.Join(m.err, err)
	return h
}

func (m *maker) bytes(name, description string) metric.Int64Histogram {
	h, err := m.meter.Int64Histogram(name, metric.WithUnit("By"), metric.WithDescription(description),
		metric.WithExplicitBucketBoundaries(64, 256, 1<<10, 4<<10, 16<<10, 64<<10, 256<<10, 1<<20, 4<<20, 16<<20, 64<<20))
	m.err = errors.Join(m.err, err)
	return h
}

func (m *maker) counter(name, unit, description string) metric.Int64Counter {
	c, err := m.meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(description))
	m.err = errors.Join(m.err, err)
	return c
}

func (m *maker) updown(name, unit, description string) metric.Int64UpDownCounter {
	c, err := m.meter.Int64UpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(description))
	m.err = errors.Join(m.err, err)
	return c
}

// The methods of this file record metrics; those of trace.go also create spans.

// count adds one event of the entity with a persistence ID. cause is nil unless an error is counted.
func (t *Telemetry) count(counter interface {
	Add(ctx context.Context, n int64, options ...metric.AddOption)
}, id string, cause error,
) {
	k := key{entity: entityType(id), code: eventsourcing.StatusOf(cause).Code}
	counter.Add(context.Background(), 1, t.attributes.get(k).add...)
}

func (t *Telemetry) stashed(i eventsourcing.StashInfo) {
	k := key{entity: entityType(i.PersistenceID), command: reflect.TypeOf(i.Command), reason: "waiting"}
	if i.Aside {
		k.reason = "aside"
	}
	t.instruments.commandStashed.Add(context.Background(), 1, t.attributes.get(k).add...)
}

func (t *Telemetry) commit(i eventsourcing.CommitInfo) {
	ctx := context.Background()
	t.instruments.commitDuration.Record(ctx, i.Duration.Seconds())
	t.instruments.commitWrites.Record(ctx, int64(i.Writes))
	t.instruments.commitEvents.Record(ctx, int64(i.Events))
	t.instruments.commitSize.Record(ctx, int64(i.Bytes))
	if i.Failed > 0 {
		t.instruments.commitFailed.Add(ctx, int64(i.Failed))
	}
}

func (t *Telemetry) instance(i cluster.InstanceInfo) {
	n := int64(1)
	switch {
	case i.Ended:
		n = -1
	case i.Stopping:
		return
	}
	t.instruments.singletons.Add(context.Background(), n, metric.WithAttributes(singletonKey.String(i.Singleton)))
}

func (t *Telemetry) phase(i cluster.PhaseInfo) {
	outcome := outcomeOK
	if i.TimedOut {
		outcome = outcomeFailed
	}
	t.instruments.shutdownDuration.Record(context.Background(), i.Took.Seconds(), metric.WithAttributes(phaseKey.String(i.Phase.String()), outcomeKey.String(outcome)))
}

func (t *Telemetry) request(i ddata.RequestInfo) {
	attributes := append(outcomeOf(i.Err), replicatorKey.String(i.Replicator), operationKey.String(i.Op))
	t.instruments.requestDuration.Record(context.Background(), i.Took.Seconds(), metric.WithAttributes(attributes...))
}

func (t *Telemetry) batch(i projection.BatchInfo) {
	ctx, name := context.Background(), projectionKey.String(i.Projection)
	t.instruments.batchDuration.Record(ctx, i.Duration.Seconds(), metric.WithAttributes(append(outcomeOf(i.Err), name)...))
	t.instruments.batchEvents.Record(ctx, int64(i.Events), metric.WithAttributes(name))
}

// outcomeOf returns the outcome of a request of replicated data or a batch. Their errors have no
// codes.
func outcomeOf(err error) []attribute.KeyValue {
	if err != nil {
		return []attribute.KeyValue{outcomeKey.String(outcomeFailed)}
	}
	return []attribute.KeyValue{outcomeKey.String(outcomeOK)}
}

// entity returns the series with only the entity's type.
func (t *Telemetry) entity(id string) *series {
	return t.attributes.get(key{entity: entityType(id)})
}
