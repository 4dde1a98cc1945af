// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package otel

import (
	"cmp"
	"fmt"

	global "go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/ddata"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/projection"
)

// Telemetry reports on any number of runtimes, nodes and projections. It is safe for concurrent use.
type Telemetry struct {
	instruments  instruments
	tracer       trace.Tracer
	metadata     metadata
	attributes   attributes
	sources      sources
	registration metric.Registration
}

// Observer returns the observer for eventsourcing.Config; see eventsourcing.Tee for more than one.
func (t *Telemetry) Observer() eventsourcing.Observer {
	i := &t.instruments
	return eventsourcing.Observer{
		Begin:           t.begin,
		Command:         t.command,
		Stashed:         t.stashed,
		Commit:          t.commit,
		RecoveryStarted: func(id string) { t.count(i.recoveryActive, id, nil) },
		Recovery:        t.recovery,
		Snapshot:        t.snapshot,
		Failure:         func(id string, cause error) { t.count(i.failures, id, cause) },
		Fence:           func(id string, _ uint64) { t.count(i.fences, id, nil) },
		Dropped:         func(d eventsourcing.DroppedInfo) { t.count(i.dropped, d.PersistenceID, d.Err) },
		Stopped:         func(id string) { t.count(i.stopped, id, nil) },
		Inject:          t.metadata.inject,
		Extract:         t.metadata.extract,
	}
}

// ClusterObserver returns the observer for cluster.Config: running singletons and the phases of the
// shutdown. See WatchNode for the other figures of a node.
func (t *Telemetry) ClusterObserver() cluster.Observer {
	return cluster.Observer{Instance: t.instance, Phase: t.phase}
}

// ReplicatorObserver returns the observer for ddata.Config: the durations of requests. See WatchNode
// for the other figures of a replicator.
func (t *Telemetry) ReplicatorObserver() ddata.Observer {
	return ddata.Observer{Request: t.request}
}

// ProjectionObserver returns the observer for projection.Config: the durations of batches. See
// WatchProjection for the other figures of a projection.
func (t *Telemetry) ProjectionObserver() projection.Observer {
	return projection.Observer{Batch: t.batch}
}

// Watch reports the number of entities of a runtime in memory, and the circuit breakers of its
// journals, until stop is called.
func (t *Telemetry) Watch(rt *eventsourcing.Runtime) (stop func()) {
	return watch(&t.sources.mu, &t.sources.runtimes, rt)
}

// WatchNode reports the figures of a node until stop is called: of its membership and transport, and
// of all its regions, proxies and replicators, also of those that start later. A node that has ended
// has only the metric of its readiness.
func (t *Telemetry) WatchNode(node *cluster.Node) (stop func()) {
	return watch(&t.sources.mu, &t.sources.nodes, node)
}

// WatchProjection reports the status of a *projection.Projection until stop is called. The name is
// that of its configuration.
func (t *Telemetry) WatchProjection(name string, p interface{ Status() projection.Status }) (stop func()) {
	return watch(&t.sources.mu, &t.sources.projections, watchedProjection{name, p})
}

// Close ends the reports of watched runtimes, nodes and projections. The providers belong to the
// caller: flush them and shut them down after the runtimes.
func (t *Telemetry) Close() error {
	if err := t.registration.Unregister(); err != nil {
		return fmt.Errorf("otel: close: %w", err)
	}
	return nil
}

// scope is the name of the instrumentation.
const scope = "github.com/refold-io/refold/plugins/otel"

// Config configures a Telemetry. The zero value selects the defaults.
type Config struct {
	// MeterProvider creates the instruments. Defaults to the global one of OpenTelemetry.
	MeterProvider metric.MeterProvider
	// TracerProvider creates the spans. Defaults to the global one of OpenTelemetry.
	TracerProvider trace.TracerProvider
	// Propagator adds data to the trace context that is stored with events, for example
	// propagation.Baggage{}. Events are permanent, so it must not add data that has to be deleted
	// later. Defaults to none.
	Propagator propagation.TextMapPropagator
}

// New returns a Telemetry. It returns the error of a MeterProvider that cannot create an
// instrument.
func New(cfg Config) (*Telemetry, error) {
	cfg.MeterProvider = cmp.Or(cfg.MeterProvider, global.GetMeterProvider())
	cfg.TracerProvider = cmp.Or(cfg.TracerProvider, global.GetTracerProvider())
	t := &Telemetry{
		tracer:   cfg.TracerProvider.Tracer(scope),
		metadata: metadata{cfg.Propagator},
	}
	meter := cfg.MeterProvider.Meter(scope)
	err := t.instruments.make(meter)
	if err == nil {
		t.registration, err = t.sources.create(meter)
	}
	if err != nil {
		return nil, fmt.Errorf("otel: create instruments: %w", err)
	}
	return t, nil
}
