// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package otel_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/plugins/otel"
	"github.com/refold-io/refold/snapshot"
	"github.com/refold-io/refold/store"
)

// tracer collects spans in memory.
type tracer struct {
	exporter *tracetest.InMemoryExporter
	provider *sdk.TracerProvider
	ended    chan string // names of ended spans
}

func newTracer(tb testing.TB, options ...sdk.TracerProviderOption) *tracer {
	tb.Helper()
	r := &tracer{exporter: tracetest.NewInMemoryExporter(), ended: make(chan string, 1000)}
	r.provider = sdk.NewTracerProvider(append(options, sdk.WithSyncer(r.exporter), sdk.WithSpanProcessor(r))...)
	tb.Cleanup(func() {
		if err := r.provider.Shutdown(context.Background()); err != nil {
			tb.Error(err)
		}
	})
	return r
}

// tracer is a span processor that is called after the exporter.
func (r *tracer) OnStart(context.Context, sdk.ReadWriteSpan) {}
func (r *tracer) OnEnd(s sdk.ReadOnlySpan)                   { r.ended <- s.Name() }
func (r *tracer) Shutdown(context.Context) error             { return nil }
func (r *tracer) ForceFlush(context.Context) error           { return nil }

// wait waits until a span with this name has ended.
func (r *tracer) wait(name string) {
	for n := range r.ended {
		if n == name {
			return
		}
	}
}

// tree formats the spans of a trace as a tree, with some of their attributes.
func (r *tracer) tree(id trace.TraceID, show ...attribute.Key) string {
	children := make(map[trace.SpanID][]string) // formatted lines by parent span
	spans := make(map[string]trace.SpanID)
	for i, s := range r.exporter.GetSpans() {
		if s.SpanContext.TraceID() != id {
			continue
		}
		line := s.Name
		for _, kv := range s.Attributes {
			if slices.Contains(show, kv.Key) {
				line += " " + kv.Value.String()
			}
		}
		if s.Status.Code == codes.Error {
			line += " failed: " + s.Status.Description
		}
		line += fmt.Sprintf("\x00%d", i)
		spans[line] = s.SpanContext.SpanID()
		children[s.Parent.SpanID()] = append(children[s.Parent.SpanID()], line)
	}
	var out strings.Builder
	var draw func(parent trace.SpanID, indent string)
	draw = func(parent trace.SpanID, indent string) {
		slices.Sort(children[parent])
		for _, line := range children[parent] {
			text, _, _ := strings.Cut(line, "\x00")
			out.WriteString(indent + text + "\n")
			draw(spans[line], indent+"  ")
		}
	}
	draw(trace.SpanID{}, "")
	return out.String()
}

// span returns the only span with a name.
func (r *tracer) span(t *testing.T, name string) tracetest.SpanStub {
	t.Helper()
	var found []tracetest.SpanStub
	for _, s := range r.exporter.GetSpans() {
		if s.Name == name {
			found = append(found, s)
		}
	}
	if len(found) != 1 {
		t.Fatalf("got %d spans %q, want 1", len(found), name)
	}
	return found[0]
}

func attributesOf(s tracetest.SpanStub) map[string]string {
	all := make(map[string]string)
	for _, kv := range s.Attributes {
		all[string(kv.Key)] = kv.Value.String()
	}
	return all
}

func wantAttributes(t *testing.T, s tracetest.SpanStub, want map[string]string) {
	t.Helper()
	if got := attributesOf(s); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s has\n%v, want\n%v", s.Name, got, want)
	}
}

// One trace contains the request, the delivery, the command of the destination, and a redelivery by
// another process.
func TestTraceAcrossDeliveries(t *testing.T) {
	t.Parallel()
	t.Run("from events", func(t *testing.T) {
		t.Parallel()
		testTraceAcrossDeliveries(t, nil)
	})
	t.Run("from a snapshot", func(t *testing.T) {
		t.Parallel()
		testTraceAcrossDeliveries(t, inmem.NewSnapshotStore())
	})
}

func testTraceAcrossDeliveries(t *testing.T, snapshots snapshot.Store) {
	t.Helper()
	r := newTracer(t)
	j := inmem.NewJournal()
	durable := make(chan string, 100)
	open := func(deaf bool) *bank {
		o := eventsourcing.Tee(newTelemetry(t, otel.Config{TracerProvider: r.provider}).Observer(), eventsourcing.Observer{
			Durable: func(id string, seqNr uint64) { durable <- fmt.Sprint(id, " ", seqNr) },
		})
		return openBank(t, eventsourcing.Config{Store: store.Of(j, snapshots), Observer: o}, deaf)
	}
	b := open(true) // the transfer is not confirmed
	ask(t, t.Context(), b, "1", Deposit{Amount: 10})
	ctx, request := r.provider.Tracer("test").Start(t.Context(), "request")
	ask(t, ctx, b, "1", Transfer{To: "2", Amount: 7})
	request.End()
	r.wait("otel_test.Credit")
	b.close(t)

	id := request.SpanContext().TraceID()
	const first = `request
  otel_test.Transfer account|1 2
    otel_test.Credit account|2 1 1
      recover account account|2 0
`
	show := []attribute.Key{"refold.persistence_id", "refold.sequence_nr", "refold.delivery.attempt"}
	if got := r.tree(id, show...); got != first {
		t.Fatalf("got\n%s\nwant\n%s", got, first)
	}
	for _, account := range []string{"account|1", "account|2"} {
		if n := traced(t, j, account, id); n != 1 {
			t.Errorf("%d events of %s belong to the trace, want 1", n, account)
		}
	}

	// The transfer is delivered again.
	b = open(false)
	ask(t, t.Context(), b, "1", Deposit{Amount: 1})
	for d := range durable {
		if d == "account|1 4" { // the event of the confirmation
			break
		}
	}
	b.close(t)
	const second = `request
  otel_test.Transfer account|1 2
    otel_test.Credit account|2 1
      recover account account|2 1
    otel_test.Credit account|2 1 1
      recover account account|2 0
`
	if got := r.tree(id, show...); got != second {
		t.Errorf("after the restart got\n%s\nwant\n%s", got, second)
	}
	if n := traced(t, j, "account|1", id); n != 2 {
		t.Errorf("%d events of the sender belong to the trace, want the transfer and its confirmation", n)
	}
	for _, s := range r.exporter.GetSpans() {
		want := trace.SpanKindInternal
		if s.Name == "otel_test.Credit" {
			want = trace.SpanKindConsumer
		}
		if s.SpanKind != want {
			t.Errorf("span %s has kind %v, want %v", s.Name, s.SpanKind, want)
		}
	}
}

// traced returns the number of events that belong to a trace.
func traced(t *testing.T, j journal.Journal, id string, want trace.TraceID) (n int) {
	t.Helper()
	extract := newTelemetry(t, otel.Config{}).Observer().Extract
	for e, err := range j.Replay(t.Context(), id, 1, journal.MaxSequenceNr) {
		if err != nil {
			t.Fatal(err)
		}
		if trace.SpanContextFromContext(extract(t.Context(), e.Metadata)).TraceID() == want {
			n++
		}
	}
	return n
}

func TestSpansOfCommands(t *testing.T) {
	t.Parallel()
	r := newTracer(t)
	o := newTelemetry(t, otel.Config{TracerProvider: r.provider}).Observer()
	b := openBank(t, eventsourcing.Config{Store: store.Of(inmem.NewJournal(), nil), Observer: o}, false)
	ask(t, t.Context(), b, "1", Deposit{Amount: 5})
	wantAttributes(t, r.span(t, "otel_test.Deposit"), map[string]string{
		"refold.entity.type": "account", "refold.command.type": "otel_test.Deposit", "refold.persistence_id": "account|1",
		"refold.events": "1", "refold.sequence_nr": "1", "refold.outcome": "ok",
	})

	if _, err := eventsourcing.Ask(t.Context(), b.Ref("1"), Transfer{Amount: 7}); err == nil {
		t.Fatal("Ask of a transfer without money returned no refusal")
	}
	refused := r.span(t, "otel_test.Transfer")
	wantAttributes(t, refused, map[string]string{
		"refold.entity.type": "account", "refold.command.type": "otel_test.Transfer", "refold.persistence_id": "account|1",
		"refold.outcome": "refused", "error.type": "bank/poor",
	})
	if refused.Status.Code != codes.Unset || len(refused.Events) > 0 {
		t.Errorf("the span of the refusal has status %+v, want unset", refused.Status)
	}

	r.exporter.Reset()
	if _, err := eventsourcing.Ask(t.Context(), b.Ref("1"), Deposit{Amount: -1}); err == nil {
		t.Fatal("Ask of a deposit of -1 returned no error")
	}
	failed := r.span(t, "otel_test.Deposit")
	if a := attributesOf(failed); a["refold.outcome"] != "failed" || a["error.type"] != "refold/panic" {
		t.Errorf("the failed span has attributes %v, want outcome failed and error type refold/panic", a)
	}
	if failed.Status.Code != codes.Error || failed.Status.Description != "refold/panic" || len(failed.Events) > 0 {
		t.Errorf("the failed span has status %+v and %d events, want an error refold/panic and no events", failed.Status, len(failed.Events))
	}
}

func TestSpansOfRecoveriesAndSnapshots(t *testing.T) {
	t.Parallel()
	r := newTracer(t)
	o := newTelemetry(t, otel.Config{TracerProvider: r.provider}).Observer()
	ctx, asker := r.provider.Tracer("test").Start(t.Context(), "asker")
	o.Recovery(eventsourcing.RecoveryInfo{PersistenceID: "account|1", Context: ctx, SequenceNr: 9, SnapshotNr: 6, Events: 3, Duration: time.Minute})
	s := r.span(t, "recover account")
	wantAttributes(t, s, map[string]string{
		"refold.entity.type": "account", "refold.persistence_id": "account|1", "refold.outcome": "ok",
		"refold.sequence_nr": "9", "refold.snapshot_nr": "6", "refold.events": "3",
	})
	if s.Parent.SpanID() != asker.SpanContext().SpanID() || s.EndTime.Sub(s.StartTime) < time.Minute {
		t.Errorf("recovery span: parent %v, duration %v; want the span of the caller and at least 1m", s.Parent.SpanID(), s.EndTime.Sub(s.StartTime))
	}

	o.Snapshot(eventsourcing.SnapshotInfo{PersistenceID: "account|1", SequenceNr: 9, Bytes: 77, Duration: time.Minute, Err: errors.New("disk /home/jane is full")})
	s = r.span(t, "save snapshot account")
	wantAttributes(t, s, map[string]string{
		"refold.entity.type": "account", "refold.persistence_id": "account|1", "refold.outcome": "failed", "error.type": "internal",
		"refold.sequence_nr": "9", "refold.snapshot.size": "77",
	})
	if s.Parent.IsValid() || s.EndTime.Sub(s.StartTime) < time.Minute || s.Status.Description != "internal" {
		t.Errorf("snapshot span: parent %v, duration %v, status %+v; want no parent, at least 1m and \"internal\"", s.Parent.SpanID(), s.EndTime.Sub(s.StartTime), s.Status)
	}
}

// The span of a command ends even if another observer adds a span to its context.
func TestCommandSpanEnds(t *testing.T) {
	t.Parallel()
	r := newTracer(t)
	other := eventsourcing.Observer{Begin: func(i eventsourcing.CommandInfo) context.Context {
		ctx, _ := r.provider.Tracer("other").Start(i.Context, "other")
		return ctx
	}}
	telemetry := newTelemetry(t, otel.Config{TracerProvider: r.provider})
	b := openBank(t, eventsourcing.Config{Store: store.Of(inmem.NewJournal(), nil), Observer: eventsourcing.Tee(telemetry.Observer(), other)}, false)
	ask(t, t.Context(), b, "1", Deposit{Amount: 5})
	if s := r.span(t, "otel_test.Deposit"); s.Parent.IsValid() {
		t.Errorf("the span has the parent %v, want none", s.Parent)
	}
}

// If the sampler drops a span, neither the span nor its children are recorded.
func TestSamplingOfWholeTrace(t *testing.T) {
	t.Parallel()
	r := newTracer(t, sdk.WithSampler(sdk.ParentBased(sdk.NeverSample())))
	j := inmem.NewJournal()
	o := newTelemetry(t, otel.Config{TracerProvider: r.provider}).Observer()
	b := openBank(t, eventsourcing.Config{Store: store.Of(j, nil), Observer: o}, false)
	ask(t, t.Context(), b, "1", Deposit{Amount: 5})
	if n := len(r.exporter.GetSpans()); n != 0 {
		t.Errorf("%d spans were recorded, want 0", n)
	}
	for e, err := range j.Replay(t.Context(), "account|1", 1, 1) {
		if err != nil {
			t.Fatal(err)
		}
		if span := trace.SpanContextFromContext(o.Extract(t.Context(), e.Metadata)); !span.IsValid() || span.IsSampled() {
			t.Errorf("the event contains the span context %v, want a valid one that is not sampled", span)
		}
	}
}

func TestNoMetadataWithoutTraces(t *testing.T) {
	t.Parallel()
	j := inmem.NewJournal()
	o := newTelemetry(t, otel.Config{TracerProvider: noop.NewTracerProvider()}).Observer()
	b := openBank(t, eventsourcing.Config{Store: store.Of(j, nil), Observer: o}, false)
	ask(t, t.Context(), b, "1", Deposit{Amount: 5})
	for e, err := range j.Replay(t.Context(), "account|1", 1, 1) {
		if err != nil || e.Metadata != nil {
			t.Errorf("the event has metadata %v, error %v; want none", e.Metadata, err)
		}
	}
}

// Telemetry contains only types and codes of commands, events and errors, and none of their data.
func TestNoDataInTelemetry(t *testing.T) {
	t.Parallel()
	r, m := newTracer(t), newMeter(t)
	o := newTelemetry(t, otel.Config{TracerProvider: r.provider, MeterProvider: m.provider}).Observer()
	b := openBank(t, eventsourcing.Config{Store: store.Of(inmem.NewJournal(), nil), Observer: o}, false)
	const amount = 987654
	ask(t, t.Context(), b, "1", Deposit{Amount: amount})
	if _, err := eventsourcing.Ask(t.Context(), b.Ref("1"), Transfer{To: "2", Amount: 10 * amount}); !errors.Is(err, errPoor) {
		t.Fatal(err)
	}
	if _, err := eventsourcing.Ask(t.Context(), b.Ref("1"), Deposit{Amount: -amount}); err == nil {
		t.Fatalf("Ask of a deposit of %d returned no error", -amount)
	}
	b.close(t)
	everything(o)
	all := strings.Join(m.collect(t), "\n")
	for _, s := range r.exporter.GetSpans() {
		all += fmt.Sprintf("\n%s %+v %+v %+v", s.Name, s.Attributes, s.Events, s.Status)
	}
	for _, secret := range []string{"Jane", "987654", "secret.example", "no amount"} {
		if strings.Contains(all, secret) {
			t.Errorf("the telemetry contains the data %q, want only types and codes", secret)
		}
	}
}
