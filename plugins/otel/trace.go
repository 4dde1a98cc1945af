// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package otel

import (
	"context"
	"encoding/binary"
	"maps"
	"reflect"
	"slices"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/refold-io/refold/eventsourcing"
)

// The metadata of an event, in its only version:
//
//	1 | trace ID, 16 | span ID, 8 | flags, 1 | pairs
//
// A pair is a name and a value, each preceded by its length as a varint. The trace state, if
// present, is the pair "tracestate"; other pairs belong to the propagator. The IDs are zero without
// a trace.
const (
	metadataVersion = 1
	headerSize      = 1 + 16 + 8 + 1
	stateName       = "tracestate"
)

// metadata carries the context of commands through the journal.
type metadata struct {
	propagator propagation.TextMapPropagator // nil for none
}

func (m metadata) inject(ctx context.Context) []byte {
	span := trace.SpanContextFromContext(ctx)
	var pairs propagation.MapCarrier
	if m.propagator != nil {
		pairs = propagation.MapCarrier{}
		m.propagator.Inject(ctx, pairs)
		delete(pairs, "traceparent") // the header of the metadata already contains the IDs
		delete(pairs, stateName)
	}
	if !span.IsValid() && len(pairs) == 0 {
		return nil
	}
	traceID, spanID := span.TraceID(), span.SpanID()
	data := make([]byte, 1, headerSize)
	data[0] = metadataVersion
	data = append(data, traceID[:]...)
	data = append(data, spanID[:]...)
	data = append(data, byte(span.TraceFlags()))
	if state := span.TraceState().String(); state != "" {
		data = appendPair(data, stateName, state)
	}
	if len(pairs) > 0 {
		for _, name := range slices.Sorted(maps.Keys(pairs)) {
			data = appendPair(data, name, pairs[name])
		}
	}
	return data
}

// extract is Observer.Extract. It ignores data that it cannot read.
func (m metadata) extract(ctx context.Context, data []byte) context.Context {
	if len(data) < headerSize || data[0] != metadataVersion {
		return ctx
	}
	pairs, ok := readPairs(data[headerSize:])
	if !ok {
		return ctx
	}
	cfg := trace.SpanContextConfig{
		TraceID:    trace.TraceID(data[1:17]),
		SpanID:     trace.SpanID(data[17:25]),
		TraceFlags: trace.TraceFlags(data[25]),
		Remote:     true,
	}
	if state, err := trace.ParseTraceState(pairs[stateName]); err == nil {
		cfg.TraceState = state
	}
	if span := trace.NewSpanContext(cfg); span.IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, span)
	}
	if m.propagator != nil && len(pairs) > 0 {
		ctx = m.propagator.Extract(ctx, pairs)
	}
	return ctx
}

func appendPair(data []byte, name, value string) []byte {
	data = binary.AppendUvarint(data, uint64(len(name)))
	data = append(data, name...)
	data = binary.AppendUvarint(data, uint64(len(value)))
	return append(data, value...)
}

// readPairs reads pairs up to the end of the data.
func readPairs(data []byte) (pairs propagation.MapCarrier, ok bool) {
	for len(data) > 0 {
		var name, value string
		if name, data, ok = readString(data); !ok {
			return nil, false
		}
		if value, data, ok = readString(data); !ok {
			return nil, false
		}
		if pairs == nil {
			pairs = propagation.MapCarrier{}
		}
		pairs[name] = value
	}
	return pairs, true
}

func readString(data []byte) (s string, rest []byte, ok bool) {
	size, n := binary.Uvarint(data)
	if n <= 0 || size > uint64(len(data)-n) { //nolint:gosec // n is at most the length
		return "", nil, false
	}
	data = data[n:]
	return string(data[:size]), data[size:], true
}

// spanKey is the context key of a command's span. The innermost span of the context may belong to
// user code.
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

// ended records the span of an operation that ends now.
func (t *Telemetry) ended(ctx context.Context, subject, id string, d time.Duration) trace.Span {
	name := entityType(id)
	_, span := t.tracer.Start(ctx, subject+name, trace.WithTimestamp(time.Now().Add(-d)),
		trace.WithAttributes(entityTypeKey.String(name), persistenceIDKey.String(id)))
	return span
}

// end ends a span. A refusal is a reply and not an error.
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

// signed converts sequence numbers and counts.
func signed(n uint64) int64 { return int64(n) } //nolint:gosec // journal.MaxSequenceNr fits
