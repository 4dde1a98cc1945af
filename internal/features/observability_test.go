// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package features_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/cluster/downing"
	"github.com/refold-io/refold/delivery"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/plugins/otel"
	"github.com/refold-io/refold/sharding"
	"github.com/refold-io/refold/store"
)

func openTelemetry(tb testing.TB, cfg otel.Config) *otel.Telemetry {
	tb.Helper()
	telemetry, err := otel.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return telemetry
}

func openObserved(tb testing.TB, db store.DB, observer eventsourcing.Observer) *eventsourcing.Runtime {
	tb.Helper()
	rt, err := eventsourcing.Open(eventsourcing.Config{Store: db, Logger: quiet(), Observer: observer})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { closeRuntime(tb, rt) })
	return rt
}

// endedSpans is a span processor that reports each ended span.
type endedSpans chan string

func (c endedSpans) OnStart(context.Context, trace.ReadWriteSpan) {}
func (c endedSpans) OnEnd(s trace.ReadOnlySpan)                   { c <- s.Name() }
func (c endedSpans) Shutdown(context.Context) error               { return nil }
func (c endedSpans) ForceFlush(context.Context) error             { return nil }

// A request at one node, the command on a second node, the delivery back to the first node and its
// redelivery form one trace.
func TestTraceAcrossNodes(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, db store.DB) {
		t.Helper()
		f, ctx, notes, ended := startNodes(t, db, 0), within(t), make(chan string, 1), make(endedSpans, 100)
		exporter := tracetest.NewInMemoryExporter()
		var providers []*trace.TracerProvider
		var reminders *sharding.Region[reminder]
		var ignored atomic.Bool // the first confirmation
		for _, role := range []string{"receivers", "senders"} {
			i := f.add(func(cfg *cluster.Config) { cfg.Roles = []string{role} })
			providers = append(providers, trace.NewTracerProvider(trace.WithSyncer(exporter), trace.WithSpanProcessor(ended),
				trace.WithResource(resource.NewSchemaless(attribute.String("service.instance.id", role)))))
			rt := openObserved(t, db, openTelemetry(t, otel.Config{TracerProvider: providers[i]}).Observer())
			typ := reminderType(nil)
			typ.Parts = eventsourcing.Parts(delivery.SendsWith("Notes", func(r *reminder) *delivery.Outbox[note] { return &r.Notes },
				delivery.Options{Interval: 100 * time.Millisecond}, func(r *reminder, ctx *reminderCtx[eventsourcing.None], a delivery.Answered[note, eventsourcing.Ack]) reminderEffect {
					if ignored.CompareAndSwap(false, true) {
						return ctx.Effect
					}
					return r.answered(ctx, a)
				}))
			region, err := sharding.Host(ctx, f.nodes[i], rt, typ, sharding.Options{Role: "senders", Shards: 10})
			if err != nil {
				t.Fatal(err)
			}
			if _, err = sharding.Host(ctx, f.nodes[i], rt, notebookType(notes), sharding.Options{Role: "receivers", Shards: 10}); err != nil {
				t.Fatal(err)
			}
			if role == "receivers" {
				reminders = region
			}
		}
		asking, request := providers[0].Tracer("test").Start(ctx, "request")
		if _, err := eventsourcing.Ask(asking, reminders.Ref("milk"), remind{To: "home"}); err != nil {
			t.Fatal(err)
		}
		request.End()
		for deliveries := 0; deliveries < 2; {
			if receive(ctx, t, ended) == "features_test.note" {
				deliveries++
			}
		}

		spans := make(map[string]tracetest.SpanStub) // by name, node and attempt
		for _, s := range exporter.GetSpans() {
			if s.SpanContext.TraceID() == request.SpanContext().TraceID() {
				id := s.Name + " on " + s.Resource.Attributes()[0].Value.AsString()
				for _, kv := range s.Attributes {
					if kv.Key == "refold.delivery.attempt" {
						id += " attempt " + kv.Value.String()
					}
				}
				spans[id] = s
			}
		}
		const command = "features_test.remind on senders"
		for child, parent := range map[string]string{
			command: "request on receivers",
			"features_test.note on receivers attempt 1": command,
			"features_test.note on receivers attempt 2": command,
		} {
			c, p := spans[child], spans[parent]
			if !c.Parent.IsValid() || c.Parent.SpanID() != p.SpanContext.SpanID() || !c.Parent.IsRemote() {
				t.Errorf("the span %q has the parent %v (remote: %v), want %q on another node; the trace has %q",
					child, c.Parent.SpanID(), c.Parent.IsRemote(), parent, slices.Sorted(maps.Keys(spans)))
			}
		}
	})
}

// figures reads the metrics of a node like a scrape. The key is the metric with those attributes that
// tell its series apart on one node: a status or an outcome.
func figures(t *testing.T, reader *metric.ManualReader) map[string]int {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &all); err != nil {
		t.Fatal(err)
	}
	got := make(map[string]int)
	add := func(name string, set attribute.Set, n int) {
		for _, key := range []attribute.Key{"refold.member.status", "refold.outcome"} {
			if v, ok := set.Value(key); ok {
				name += " " + v.AsString()
			}
		}
		got[name] += n
	}
	for _, m := range all.ScopeMetrics[0].Metrics {
		switch data := m.Data.(type) {
		case metricdata.Sum[int64]:
			for _, p := range data.DataPoints {
				add(m.Name, p.Attributes, int(p.Value))
			}
		case metricdata.Gauge[int64]:
			for _, p := range data.DataPoints {
				add(m.Name, p.Attributes, int(p.Value))
			}
		case metricdata.Histogram[float64]:
			for _, p := range data.DataPoints {
				add(m.Name, p.Attributes, int(p.Count))
			}
		}
	}
	return got
}

// The node that runs the coordinator is killed. The series of the dashboard show the detection, the
// removal, the move of the coordinator and of the shards, the recoveries on the other nodes, and their
// transport.
func TestSeriesOfAKilledNode(t *testing.T) {
	t.Parallel()
	db, err := inmem.Open()
	if err != nil {
		t.Fatal(err)
	}
	const shards = 12
	f, ctx := startNodes(t, db, 0), within(t)
	var readers []*metric.ManualReader
	var regions []*sharding.Region[tally]
	for range 3 {
		reader := metric.NewManualReader()
		telemetry := openTelemetry(t, otel.Config{MeterProvider: metric.NewMeterProvider(metric.WithReader(reader))})
		// The detection has to be collected before the removal.
		i := f.add(func(cfg *cluster.Config) {
			cfg.Downing, cfg.Observer = downing.Settings{StableAfter: 8 * time.Second}, telemetry.ClusterObserver()
		})
		rt := openObserved(t, db, telemetry.Observer())
		telemetry.WatchNode(f.nodes[i])
		telemetry.Watch(rt)
		region, hostErr := sharding.Host(ctx, f.nodes[i], rt, tallyType(), sharding.Options{
			Shards: shards, Tuning: sharding.Tuning{RebalanceInterval: time.Hour}, ShardOf: func(id string) sharding.Shard { return sharding.Shard(id[0] - 'a') },
		})
		if hostErr != nil {
			t.Fatal(hostErr)
		}
		readers, regions = append(readers, reader), append(regions, region)
	}
	countAll := func(by int) {
		t.Helper()
		for shard := range shards {
			if _, failed := askAgain(ctx, regions[1].Ref(fmt.Sprintf("%c", 'a'+shard)), count{By: by}); failed != nil {
				t.Fatal(failed)
			}
		}
	}
	want := func(node int, when string, series map[string]int) {
		t.Helper()
		got := figures(t, readers[node])
		for name, n := range series {
			if got[name] != n {
				t.Errorf("%s: node %d reports %s %d, want %d", when, node, name, got[name], n)
			}
		}
	}
	const (
		up, unreachable   = "refold.cluster.member.count up", "refold.cluster.member.unreachable"
		hosted, placed    = "refold.sharding.shard.hosted", "refold.sharding.shard.placed"
		active, recovered = "refold.sharding.coordinator.active", "refold.recovery.duration ok"

		sent, queued     = "refold.transport.io", "refold.transport.queue.size"
		dropped, refused = "refold.transport.message.dropped", "refold.transport.message.refused"
		memory           = "refold.transport.memory.usage"
	)
	transported := []string{sent, queued, dropped, refused, memory}
	countAll(1)
	before := make([]map[string]int, 3)
	for i := range before {
		for range f.nodes[i].Events(ctx) { // the first one is the current state
			if s := f.nodes[i].State(); !slices.ContainsFunc(f.nodes, func(n *cluster.Node) bool { return s.Status(n.Self()) != cluster.Up }) {
				break
			}
		}
		before[i] = figures(t, readers[i])
		want(i, "before the crash", map[string]int{up: 3, unreachable: 0, placed: shards * before[i][active]})
	}
	if before[0][active] != 1 || before[0][hosted] == 0 || before[0][hosted]+before[1][hosted]+before[2][hosted] != shards {
		t.Fatalf("before the crash, the nodes host %d, %d and %d shards, and the first node runs %d coordinators; want %d shards and 1 coordinator",
			before[0][hosted], before[1][hosted], before[2][hosted], before[0][active], shards)
	}

	f.crash(f.nodes[0])
	for e := range f.nodes[1].Changes(ctx, cluster.MemberUnreachable) {
		if e.Member.Node == f.nodes[0].Self() {
			want(1, "after the detection", map[string]int{up: 3, unreachable: 1})
			break
		}
	}
	for i := 1; i < 3; i++ {
		for range f.nodes[i].Events(ctx) { // the first one is the current state
			if f.nodes[i].State().Status(f.nodes[0].Self()) == cluster.Removed {
				want(i, "after the removal", map[string]int{up: 2, unreachable: 0, "refold.cluster.member.changes removed": 1})
				break
			}
		}
	}
	countAll(0)
	sum := make(map[string]int)
	for i := 1; i < 3; i++ {
		for name, n := range figures(t, readers[i]) {
			sum[name] += n - map[bool]int{true: before[i][name]}[name == recovered]
		}
	}
	for name, n := range map[string]int{hosted: shards, placed: shards, active: 1, recovered: before[0][hosted]} {
		if sum[name] != n {
			t.Errorf("after the commands to all entities, the other nodes report %s %d, want %d", name, sum[name], n)
		}
	}
	for i := 1; i < 3; i++ { // the rest of the cluster talks on, and nothing waits for the removed node
		got := figures(t, readers[i])
		for ctx.Err() == nil && (got[queued] > 0 || got[memory] > 0 || got[sent] <= before[i][sent]) { // messages are on their way at times
			got = figures(t, readers[i])
		}
		if got[queued] != 0 || got[memory] != 0 || got[refused] != 0 || got[sent] <= before[i][sent] || got[dropped] < before[i][dropped] {
			t.Errorf("after the removal, node %d reports %v, and %v before the crash; want more traffic, and no messages that wait or were refused", i, got, before[i])
		}
		for _, name := range transported {
			if _, reported := got[name]; !reported {
				t.Errorf("after the removal, node %d does not report %s", i, name)
			}
		}
	}
	if err = ctx.Err(); err != nil {
		t.Error(context.Cause(ctx))
	}

	dashboard, err := os.ReadFile("../../deploy/grafana/refold.json")
	if err != nil {
		t.Fatal(err)
	}
	shown := regexp.MustCompile(`refold_transport_[a-z_]+\{job`).FindAllString(string(dashboard), -1)
	if slices.Sort(shown); len(slices.Compact(shown)) != len(transported) {
		t.Errorf("the dashboard shows the series %q of the transport, and the test reads %q", shown, transported)
	}
	for _, name := range append(transported, up, unreachable, "refold.cluster.member.changes removed", hosted, placed, active, "refold.recovery.duration") {
		name, _, _ = strings.Cut(name, " ")
		if !strings.Contains(string(dashboard), strings.ReplaceAll(name, ".", "_")) {
			t.Errorf("the dashboard does not show %s", name)
		}
	}
}
