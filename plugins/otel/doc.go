// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package otel turns what a runtime reports into OpenTelemetry metrics and
// traces.
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
// A command's duration runs from its handing over to its answer, the wait for a
// recovery and for the journal included. A commit is one call of the journal,
// which carries the writes of many entities. The attributes are
//
//	refold.entity.type   the name of the type: "account"
//	refold.command.type  the Go type of the command: "bank.Deposit"
//	refold.outcome       "ok", "refused" by the aggregate, or "failed"
//	refold.stash.reason  "aside" by the aggregate, or "waiting"
//	error.type           what eventsourcing.Code says; absent without an error
//
// # Traces
//
// A command is a span, from its handing over to its answer, below the span of
// the asker. Handlers find it in Context.Context. The trace goes on with what
// follows from the command, also in another process and after a restart:
//
//	HTTP request                     the asker's own span
//	  bank.Transfer                  account|1 decides, its event is stored
//	    recover account              if it was not in memory
//	    bank.Credit                  account|2, first transmission
//	    bank.Credit                  account|2, again after a restart
//
// For that, the events that a command persists carry its trace and span in their
// metadata, 26 bytes; the outbox of package delivery keeps them, and every
// transmission of a delivery is a span below that of the command that asked for
// it. The attributes of spans are those of the metrics and
//
//	refold.persistence_id    "account|42"
//	refold.sequence_nr       the number of the last event
//	refold.events            how many events the command decided on, or a recovery replayed
//	refold.delivery.attempt  counts the transmissions of a delivery from 1, anew at each start
//	refold.snapshot_nr       the number of the snapshot that a recovery began with
//	refold.snapshot.size     the size of a snapshot, in bytes
//
// Recoveries that no command waits for and snapshots are traces of their own.
//
// # Guarantees
//
// Nothing of a command, an event or an error but its type or code leaves the
// process: messages of errors may hold data. Persistence IDs stand in spans and
// never in metrics, whose number of series they would multiply. A refusal is an
// answer, and no error of the span.
//
// # Caveats
//
// Handlers that hand on their Context.Context with a Tell, from one command to
// the next for ever, make one trace for ever, and contexts that grow: begin such
// a loop anew with context.Background.
//
// Every command of an observed runtime begins a span; how many are recorded is
// up to the sampler of the TracerProvider. The codes of refusals are attributes
// of metrics: they have to be few, and beyond 1,000 combinations the
// further ones are "_OTHER".
package otel
