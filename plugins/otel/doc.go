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
//
// # Metrics
//
//	instrument                   kind           unit        attributes
//	refold.command.duration      histogram      s           entity type, command type, outcome, error type
//	refold.command.stashed       counter        {command}   entity type, command type, stash reason
//	refold.commit.duration       histogram      s
//	refold.commit.writes         histogram      {write}
//	refold.commit.events         histogram      {event}
//	refold.commit.size           histogram      By
//	refold.commit.failed_writes  counter        {write}
//	refold.recovery.duration     histogram      s           entity type, outcome, error type
//	refold.recovery.events       histogram      {event}     entity type
//	refold.recovery.active       updowncounter  {recovery}  entity type
//	refold.snapshot.duration     histogram      s           entity type, outcome, error type
//	refold.snapshot.size         histogram      By          entity type
//	refold.entity.resident       updowncounter  {entity}    entity type
//	refold.entity.stopped        counter        {entity}    entity type
//	refold.entity.failures       counter        {failure}   entity type, error type
//	refold.entity.fences         counter        {fence}     entity type
//	refold.message.dropped       counter        {message}   entity type, error type
//
// The duration of a command is the time from its submission to its reply, including the wait for a
// recovery and for the journal. A commit is one call of the journal, which carries the writes of
// many entities. The attributes are
//
//	refold.entity.type   the name of the type: "account"
//	refold.command.type  the Go type of the command: "bank.Deposit"
//	refold.outcome       "ok", "refused" by the aggregate, or "failed"
//	refold.stash.reason  "aside" by the aggregate, or "waiting"
//	error.type           the code of the error, see package eventsourcing; absent without an error
//
// # Traces
//
// A command is a span from its submission to its reply, a child of the caller's span. Handlers find
// this span in Context.Context. The trace continues with the consequences of the command, also in
// another process and after a restart:
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
