// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package nats_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/refold-io/refold/plugins/nats/embedded"
	"github.com/refold-io/refold/transport"
)

const kindEcho = transport.FirstUserKind

// BenchmarkRequest compares requests of many callers over a transport with requests over the bare
// client. The runs are sequential and use the same server.
func BenchmarkRequest(b *testing.B) {
	for _, callers := range []int{1, 64, 1000} {
		for _, size := range []int{100, 1000} {
			payload := []byte(strings.Repeat("x", size))
			b.Run(fmt.Sprintf("callers=%d/bytes=%d/raw", callers, size), func(b *testing.B) { benchmarkRaw(b, callers, payload) })
			b.Run(fmt.Sprintf("callers=%d/bytes=%d/refold", callers, size), func(b *testing.B) { benchmarkRefold(b, callers, payload) })
		}
	}
}

func benchmarkRaw(b *testing.B, callers int, payload []byte) {
	b.Helper()
	s := start(b, embedded.Config{})
	dial := func() *natsgo.Conn {
		token, err := os.ReadFile(s.TokenFile())
		if err != nil {
			b.Fatal(err)
		}
		nc, err := natsgo.Connect(s.URL(), natsgo.Token(strings.TrimSpace(string(token))))
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(nc.Close)
		return nc
	}
	client, server := dial(), dial()
	if _, err := server.Subscribe("echo", func(m *natsgo.Msg) { _ = m.Respond(m.Data) }); err != nil {
		b.Fatal(err)
	}
	if err := server.Flush(); err != nil {
		b.Fatal(err)
	}
	measure(b, callers, func() error {
		_, err := client.Request("echo", payload, 10*time.Second)
		return err
	})
}

func benchmarkRefold(b *testing.B, callers int, payload []byte) {
	b.Helper()
	s := start(b, embedded.Config{})
	client, server := open(b, config(s, "client"), transport.Config{}), open(b, config(s, "server"), transport.Config{})
	server.HandleRequest(kindEcho, func(_ context.Context, r *transport.Request) { _ = r.Reply(r.Payload) })
	measure(b, callers, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_, err := client.Request(ctx, server.Self(), kindEcho, payload)
		return err
	})
	s1, s2 := client.Stats().Lanes[transport.Data], server.Stats().Lanes[transport.Data]
	b.ReportMetric(float64(s1.MessagesOut)/float64(s1.FramesOut), "requests/frame")
	b.ReportMetric(float64(s2.MessagesOut)/float64(s2.FramesOut), "replies/frame")
}

func measure(b *testing.B, callers int, call func() error) {
	b.Helper()
	if err := call(); err != nil {
		b.Fatal(err)
	}
	var left atomic.Int64
	left.Store(int64(b.N))
	var wg sync.WaitGroup
	b.ResetTimer()
	for range callers {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if err := call(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
}
