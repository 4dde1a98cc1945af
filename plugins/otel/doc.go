// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package otel exports the reports of a runtime as OpenTelemetry metrics and traces.
//
//	telemetry, err := otel.New(otel.Config{})
//	if err != nil {
//		return err
//	}
//	defer telemetry.Close()
//	rt, err := eventsourcing.Open(eventsourcing.Config{Store: store.Of(j, nil), Observer: telemetry.Observer()})
//	if err != nil {
//		return err
//	}
//	defer telemetry.Watch(rt)()
//	defer telemetry.WatchNode(node)() // in a cluster
//
// # Metrics
//
// docs/observability.md lists all metrics with their units, attributes and names in Prometheus. The
// folder deploy has a dashboard and alert rules for them.
//
//	Observer            commands, commits, recoveries, snapshots, entities
//	Watch               entities in memory, circuit breakers
//	WatchNode           membership, transport, and all regions, proxies and replicators of a node
//	ClusterObserver     singletons, phases of the shutdown
//	ReplicatorObserver  durations of requests for replicated data
//	WatchProjection     lag, workers and counts of a projection
//	ProjectionObserver  durations of batches
//
// The duration of a command is the time from its submission to its reply, including the wait for a
// recovery and for the journal. A commit is one call of the journal, which carries the writes of
// many entities. The methods whose names begin with Watch read the figures at each collection, for at
// most 5 s in all, and cost nothing in between.
//
// # Traces
//
// A command is a span from its submission to its reply, a child of the caller's span. Handlers find
// this span in Context.Context. The trace continues with the consequences of the command, also in
// another process, on another node and after a restart:
//
//	HTTP request                     the caller's span
//	  bank.Transfer                  account|1 decides, its event is stored
//	    recover account              if it was not in memory
//	    bank.Credit                  account|2, first transmission
//	    bank.Credit                  account|2, again after a restart
//
// The events that a command persists carry its trace and span in their metadata (26 bytes). The
// outbox of package delivery keeps them, and every transmission of a delivery is a child span of
// the command that requested it. Spans have the attributes of the metrics and
//
//	refold.persistence_id    "account|42"
//	refold.sequence_nr       the number of the last event
//	refold.events            the number of events that the command persisted or a recovery replayed
//	refold.delivery.attempt  the number of the transmission, starting at 1 after each recovery
//	refold.snapshot_nr       the sequence number of the snapshot of a recovery
//	refold.snapshot.size     the size of a snapshot, in bytes
//
// Snapshots, and recoveries without a waiting command, are separate traces.
//
// # Guarantees
//
// Only types and codes of commands, events and errors leave the process, because error messages may
// hold data. Persistence IDs are attributes of spans and never of metrics, where they would
// multiply the number of series. A refusal is a reply and does not mark the span as failed.
//
// # Caveats
//
// Handlers that pass their Context.Context from one command to the next with Tell, in an endless
// loop, create one endless trace and growing contexts. Start each round of such a loop with
// context.Background.
//
// Every command of an observed runtime starts a span; the sampler of the TracerProvider selects the
// spans that are recorded. The codes of refusals are attributes of metrics and must be few: beyond
// 1,000 combinations, further codes become "_OTHER".
package otel
