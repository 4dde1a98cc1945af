// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package otel

import (
	"context"
	"reflect"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/refold-io/refold/eventsourcing"
)

// spanKey is where a command's context has its span: the innermost one may be
// that of somebody else.
type spanKey struct{}

func (t *Telemetry) begin(i eventsourcing.CommandInfo) context.Context {
	s := t.attributes.get(key{entity: entityType(i.PersistenceID), command: reflect.TypeOf(i.Command), outcome: outcomeOK})
	options := s.start
	if i.Attempt > 0 {
		options = s.deliver
	}
	ctx, span := t.tracer.Start(i.Context, s.name, options...)
	if span.IsRecording() {
		span.SetAttributes(persistenceIDKey.String(i.PersistenceID))
		if i.Attempt > 0 {
			span.SetAttributes(attemptKey.Int(i.Attempt))
		}
	}
	return context.WithValue(ctx, spanKey{}, span)
}

func (t *Telemetry) command(i eventsourcing.CommandInfo) {
	k := key{entity: entityType(i.PersistenceID), command: reflect.TypeOf(i.Command)}.result(i.Err)
	t.instruments.commandDuration.Record(i.Context, i.Duration.Seconds(), t.attributes.get(k).record...)
	span, ok := i.Context.Value(spanKey{}).(trace.Span)
	if !ok || !span.IsRecording() {
		return
	}
	if i.Events > 0 {
		span.SetAttributes(eventsKey.Int(i.Events), sequenceNrKey.Int64(signed(i.SequenceNr)))
	}
	end(span, k)
}

func (t *Telemetry) recovery(i eventsourcing.RecoveryInfo) {
	k := key{entity: entityType(i.PersistenceID)}.result(i.Err)
	ctx := i.Context
	t.instruments.recoveryActive.Add(ctx, -1, t.entity(i.PersistenceID).add...)
	t.instruments.recoveryDuration.Record(ctx, i.Duration.Seconds(), t.attributes.get(k).record...)
	t.instruments.recoveryEvents.Record(ctx, signed(i.Events), t.entity(i.PersistenceID).record...)
	span := t.ended(ctx, "recover ", i.PersistenceID, i.Duration)
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(eventsKey.Int64(signed(i.Events)), sequenceNrKey.Int64(signed(i.SequenceNr)), snapshotNrKey.Int64(signed(i.SnapshotNr)))
	end(span, k)
}

func (t *Telemetry) snapshot(i eventsourcing.SnapshotInfo) {
	k := key{entity: entityType(i.PersistenceID)}.result(i.Err)
	ctx := context.Background()
	t.instruments.snapshotDuration.Record(ctx, i.Duration.Seconds(), t.attributes.get(k).record...)
	t.instruments.snapshotSize.Record(ctx, int64(i.Bytes), t.entity(i.PersistenceID).record...)
	span := t.ended(ctx, "save snapshot ", i.PersistenceID, i.Duration)
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(sequenceNrKey.Int64(signed(i.SequenceNr)), snapshotSizeKey.Int(i.Bytes))
	end(span, k)
}

// ended begins the span of something that took a while and ends now.
func (t *Telemetry) ended(ctx context.Context, what, id string, d time.Duration) trace.Span {
	name := entityType(id)
	_, span := t.tracer.Start(ctx, what+name, trace.WithTimestamp(time.Now().Add(-d)),
		trace.WithAttributes(entityTypeKey.String(name), persistenceIDKey.String(id)))
	return span
}

// end ends a span. A refusal is an answer and no error.
func end(span trace.Span, k key) {
	span.SetAttributes(outcomeKey.String(k.outcome))
	if k.code != "" {
		span.SetAttributes(errorTypeKey.String(k.code))
	}
	if k.outcome == outcomeFailed {
		span.SetStatus(codes.Error, k.code)
	}
	span.End()
}

// signed converts sequence numbers and counts of them.
func signed(n uint64) int64 { return int64(n) } //nolint:gosec // journal.MaxSequenceNr fits
