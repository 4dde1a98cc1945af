// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package otel

import (
	"context"
	"errors"
	"reflect"

	"go.opentelemetry.io/otel/metric"

	"github.com/refold-io/refold/eventsourcing"
)

// instruments are all metrics; doc.go lists them.
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
	resident         metric.Int64ObservableUpDownCounter
	stopped          metric.Int64Counter
	failures         metric.Int64Counter
	fences           metric.Int64Counter
	dropped          metric.Int64Counter

	registration metric.Registration
}

func (i *instruments) make(meter metric.Meter, resident metric.Callback) error {
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
	var errActive, errResident error
	i.recoveryActive, errActive = meter.Int64UpDownCounter("refold.recovery.active", metric.WithUnit("{recovery}"), metric.WithDescription("Recoveries in progress."))
	i.resident, errResident = meter.Int64ObservableUpDownCounter("refold.entity.resident", metric.WithUnit("{entity}"), metric.WithDescription("Entities in memory."))
	if err := errors.Join(m.err, errActive, errResident); err != nil {
		return err
	}
	var err error
	i.registration, err = meter.RegisterCallback(resident, i.resident)
	return err
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

// entity returns the series with only the entity's type.
func (t *Telemetry) entity(id string) *series {
	return t.attributes.get(key{entity: entityType(id)})
}
