// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package otel_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"testing"

	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/refold-io/refold/plugins/otel"
)

// Events in existing journals contain these bytes, so every later version must read them.
const (
	golden        = "01" + "0102030405060708090a0b0c0d0e0f10" + "1112131415161718" + "01"
	goldenState   = golden + "0a" + "7472616365737461746" + "5" + "07" + "76656e3d313233" // tracestate, ven=123
	goldenBaggage = golden + "07" + "62616767616765" + "0b" + "74656e616e743d61636d65"    // baggage, tenant=acme
)

func spanContext(tb testing.TB, state string) trace.SpanContext {
	tb.Helper()
	s, err := trace.ParseTraceState(state)
	if err != nil {
		tb.Fatal(err)
	}
	return trace.NewSpanContext(trace.SpanContextConfig{
		TraceID:    trace.TraceID{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16},
		SpanID:     trace.SpanID{17, 18, 19, 20, 21, 22, 23, 24},
		TraceFlags: trace.FlagsSampled, TraceState: s, Remote: true,
	})
}

func withTenant(tb testing.TB, ctx context.Context) context.Context { //nolint:revive // tb first
	tb.Helper()
	member, err := baggage.NewMember("tenant", "acme")
	if err != nil {
		tb.Fatal(err)
	}
	b, err := baggage.New(member)
	if err != nil {
		tb.Fatal(err)
	}
	return baggage.ContextWithBaggage(ctx, b)
}

func TestMetadata(t *testing.T) {
	t.Parallel()
	both := propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})
	for name, test := range map[string]struct {
		propagator propagation.TextMapPropagator
		span       trace.SpanContext
		tenant     bool
		want       string // in hexadecimal
		tenantBack string
	}{
		"nothing":                  {},
		"trace":                    {span: spanContext(t, ""), want: golden},
		"state":                    {span: spanContext(t, "ven=123"), want: goldenState},
		"baggage, no propagator":   {span: spanContext(t, ""), tenant: true, want: golden},
		"baggage":                  {propagator: both, span: spanContext(t, ""), tenant: true, want: goldenBaggage, tenantBack: "acme"},
		"no baggage":               {propagator: both, span: spanContext(t, ""), want: golden},
		"propagated state":         {propagator: both, span: spanContext(t, "ven=123"), want: goldenState},
		"propagator without trace": {propagator: both},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newTelemetry(t, otel.Config{Propagator: test.propagator}).Observer()
			ctx := trace.ContextWithSpanContext(t.Context(), test.span)
			if test.tenant {
				ctx = withTenant(t, ctx)
			}
			data := o.Inject(ctx)
			if got := hex.EncodeToString(data); got != test.want {
				t.Fatalf("got\n%s, want\n%s", got, test.want)
			}
			if data == nil != (test.want == "") {
				t.Error("Inject without data returned empty metadata, want nil")
			}
			back := o.Extract(t.Context(), data)
			if got := trace.SpanContextFromContext(back); !got.Equal(test.span) {
				t.Errorf("extracted %v, want %v", got, test.span)
			}
			if got := baggage.FromContext(back).Member("tenant").Value(); got != test.tenantBack {
				t.Errorf("extracted the tenant %q, want %q", got, test.tenantBack)
			}
		})
	}
}

func TestBaggageWithoutTrace(t *testing.T) {
	t.Parallel()
	o := newTelemetry(t, otel.Config{Propagator: propagation.Baggage{}}).Observer()
	back := o.Extract(t.Context(), o.Inject(withTenant(t, t.Context())))
	if got := baggage.FromContext(back).Member("tenant").Value(); got != "acme" {
		t.Errorf("extracted the tenant %q, want \"acme\"", got)
	}
	if trace.SpanContextFromContext(back).IsValid() {
		t.Error("the extracted context has a valid span context, want none")
	}
}

func TestForeignMetadata(t *testing.T) {
	t.Parallel()
	whole, err := hex.DecodeString(goldenState)
	if err != nil {
		t.Fatal(err)
	}
	o := newTelemetry(t, otel.Config{Propagator: propagation.Baggage{}}).Observer()
	foreign := [][]byte{nil, {}, []byte("{}"), append([]byte{2}, whole[1:]...), append(bytes.Clone(whole[:26]), 0xff)}
	for n := range whole {
		if n != 26 { // 26 bytes are valid metadata without pairs
			foreign = append(foreign, whole[:n])
		}
	}
	for _, data := range foreign {
		if ctx := o.Extract(t.Context(), data); ctx != t.Context() {
			t.Errorf("Extract changed the context for the foreign metadata %x, want the same context", data)
		}
	}
}

func FuzzExtract(f *testing.F) {
	for _, s := range []string{golden, goldenState, goldenBaggage, ""} {
		data, err := hex.DecodeString(s)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	telemetry, err := otel.New(otel.Config{Propagator: propagation.Baggage{}})
	if err != nil {
		f.Fatal(err)
	}
	o := telemetry.Observer()
	f.Fuzz(func(t *testing.T, data []byte) {
		before := bytes.Clone(data)
		ctx := o.Extract(t.Context(), data)
		if !bytes.Equal(data, before) {
			t.Fatal("Extract changed the bytes of the metadata")
		}
		again := o.Extract(t.Context(), o.Inject(ctx))
		if a, b := trace.SpanContextFromContext(ctx), trace.SpanContextFromContext(again); a.IsValid() && !a.Equal(b) {
			t.Fatalf("Extract returned the span context %v, and %v after another Inject; want equal ones", a, b)
		}
	})
}
