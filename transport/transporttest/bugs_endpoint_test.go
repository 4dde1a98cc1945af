// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package transporttest_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/transport"
	"github.com/refold-io/refold/transport/transporttest"
)

// end is a transport with a bug. A nil field leaves the method of the transport unchanged.
type end struct {
	*transport.Transport

	send       func(t *transport.Transport, to identity.Node, lane transport.Lane, kind transport.Kind, payload []byte) error
	request    func(t *transport.Transport, ctx context.Context, to identity.Node, kind transport.Kind, payload []byte) ([]byte, error)
	handler    func(h transport.Handler) transport.Handler
	handle     func(t *transport.Transport, kind transport.Kind, h transport.Handler)
	requests   func(h transport.RequestHandler) transport.RequestHandler
	quarantine func(t *transport.Transport, node identity.Node)
	stats      func(s *transport.Stats)
	close      func(t *transport.Transport) error
}

func (e *end) Send(to identity.Node, lane transport.Lane, kind transport.Kind, payload []byte) error {
	if e.send != nil {
		return e.send(e.Transport, to, lane, kind, payload)
	}
	return e.Transport.Send(to, lane, kind, payload)
}

func (e *end) Request(ctx context.Context, to identity.Node, kind transport.Kind, payload []byte) ([]byte, error) {
	if e.request != nil {
		return e.request(e.Transport, ctx, to, kind, payload)
	}
	return e.Transport.Request(ctx, to, kind, payload)
}

func (e *end) Handle(kind transport.Kind, h transport.Handler) {
	if e.handler != nil {
		h = e.handler(h)
	}
	if e.handle != nil {
		e.handle(e.Transport, kind, h)
		return
	}
	e.Transport.Handle(kind, h)
}

func (e *end) HandleRequest(kind transport.Kind, h transport.RequestHandler) {
	if e.requests != nil {
		h = e.requests(h)
	}
	e.Transport.HandleRequest(kind, h)
}

func (e *end) Quarantine(node identity.Node, quiet bool) {
	if e.quarantine != nil {
		e.quarantine(e.Transport, node)
		return
	}
	e.Transport.Quarantine(node, quiet)
}

func (e *end) Stats() transport.Stats {
	s := e.Transport.Stats()
	if e.stats != nil {
		e.stats(&s)
	}
	return s
}

func (e *end) Close() error {
	if e.close != nil {
		return e.close(e.Transport)
	}
	return e.Transport.Close()
}

func with(bug end) func(t *transport.Transport) transporttest.Endpoint {
	return func(t *transport.Transport) transporttest.Endpoint {
		own := bug
		own.Transport = t
		return &own
	}
}

func handling(f func(h transport.Handler) transport.Handler) func(t *transport.Transport) transporttest.Endpoint {
	return with(end{handler: f})
}

func endpointBugs() map[string]planted {
	return map[string]planted{
		"swaps messages": {finds: []string{"LinkOrder"}, wrap: handling(func(h transport.Handler) transport.Handler {
			var mu sync.Mutex
			held := make(map[transport.Lane]*transport.Message)
			return func(ctx context.Context, m transport.Message) {
				mu.Lock()
				defer mu.Unlock()
				if before := held[m.Lane]; before != nil {
					held[m.Lane] = nil
					h(ctx, m)
					h(ctx, *before)
				} else {
					held[m.Lane] = &m
				}
			}
		})},
		"truncates messages": {finds: []string{"LinkSizes"}, wrap: handling(func(h transport.Handler) transport.Handler {
			return func(ctx context.Context, m transport.Message) {
				m.Payload = m.Payload[:min(len(m.Payload), 1<<20-1)]
				h(ctx, m)
			}
		})},
		"handles twice": {finds: []string{"LinkAtMostOnce", "LinkGap", "LinkOvertaken"}, wrap: handling(func(h transport.Handler) transport.Handler {
			return func(ctx context.Context, m transport.Message) {
				h(ctx, m)
				h(ctx, m)
			}
		})},
		"counts no gaps":  {finds: []string{"LinkGap"}, wrap: with(end{stats: func(s *transport.Stats) { s.Lanes = [transport.Lanes]transport.LaneStats{} }}), hangs: true},
		"counts no drops": {finds: []string{"LinkAtMostOnce", "LinkOvertaken"}, wrap: with(end{stats: func(s *transport.Stats) { s.Dropped = [transport.Reasons]uint64{} }})},
		"no backpressure": {finds: []string{"FlowBackpressure"}, wrap: with(end{send: func(t *transport.Transport, to identity.Node, lane transport.Lane, kind transport.Kind, payload []byte) error {
			if err := t.Send(to, lane, kind, payload); !errors.Is(err, transport.ErrBackpressure) {
				return err
			}
			return nil
		}}), hangs: true},
		"credit is never restored": {finds: []string{"FlowBackpressure", "FlowLoss"}, wrap: func(t *transport.Transport) transporttest.Endpoint {
			var full atomic.Bool
			return &end{Transport: t, send: func(t *transport.Transport, to identity.Node, lane transport.Lane, kind transport.Kind, payload []byte) error {
				if full.Load() {
					return transport.ErrBackpressure
				}
				err := t.Send(to, lane, kind, payload)
				full.Store(errors.Is(err, transport.ErrBackpressure))
				return err
			}}
		}, hangs: true},
		"one handler at a time": {finds: []string{"FlowSlowReceiver"}, wrap: handling(func(h transport.Handler) transport.Handler {
			var mu sync.Mutex
			return func(ctx context.Context, m transport.Message) {
				mu.Lock()
				defer mu.Unlock()
				h(ctx, m)
			}
		}), hangs: true},
		"messages to the name reach all handlers": {finds: []string{"TrustNames"}, wrap: with(end{handle: func(t *transport.Transport, kind transport.Kind, h transport.Handler) {
			t.Handle(kind, h)
			t.HandleNamed(kind, h)
		}})},
		"quarantine does nothing": {finds: []string{"TrustQuarantine"}, wrap: with(end{quarantine: func(*transport.Transport, identity.Node) {}})},
		"quarantine applies to the name": {finds: []string{"TrustQuarantine"}, hangs: true, wrap: func(t *transport.Transport) transporttest.Endpoint {
			var name atomic.Value
			return &end{
				Transport: t,
				quarantine: func(t *transport.Transport, node identity.Node) {
					t.Quarantine(node, false)
					name.Store(node.Name)
				},
				handler: func(h transport.Handler) transport.Handler {
					return func(ctx context.Context, m transport.Message) {
						if name.Load() != m.From.Name {
							h(ctx, m)
						}
					}
				},
			}
		}},
		"quiet quarantine": {finds: []string{"TrustQuarantine"}, hangs: true, wrap: with(end{quarantine: func(t *transport.Transport, node identity.Node) { t.Quarantine(node, true) }})},
		"replies are mixed up": {finds: []string{"RequestReply"}, wrap: func(t *transport.Transport) transporttest.Endpoint {
			var mu sync.Mutex
			var last []byte
			return &end{Transport: t, request: func(t *transport.Transport, ctx context.Context, to identity.Node, kind transport.Kind, payload []byte) ([]byte, error) {
				got, err := t.Request(ctx, to, kind, payload)
				mu.Lock()
				defer mu.Unlock()
				got, last = last, got
				return got, err
			}}
		}},
		"ignores the context": {finds: []string{"RequestContext"}, hangs: true, wrap: with(end{request: func(t *transport.Transport, ctx context.Context, to identity.Node, kind transport.Kind, payload []byte) ([]byte, error) {
			return t.Request(context.WithoutCancel(ctx), to, kind, payload)
		}})},
		"does not report a missing handler": {finds: []string{"RequestNoHandler"}, wrap: with(end{request: func(t *transport.Transport, ctx context.Context, to identity.Node, kind transport.Kind, payload []byte) ([]byte, error) {
			got, err := t.Request(ctx, to, kind, payload)
			if errors.Is(err, transport.ErrNoHandler) {
				err = nil
			}
			return got, err
		}})},
		"waits for the reply": {finds: []string{"RequestLater"}, wrap: with(end{requests: func(h transport.RequestHandler) transport.RequestHandler {
			return func(ctx context.Context, r *transport.Request) {
				_ = r.Reply(nil)
				h(ctx, r)
			}
		}})},
		"continues after Close": {finds: []string{"CloseWaits", "CloseUnderLoad"}, wrap: with(end{close: func(t *transport.Transport) error {
			time.AfterFunc(50*time.Millisecond, func() { _ = t.Close() })
			return nil
		}})},
		"does not wait for handlers": {finds: []string{"CloseWaits"}, wrap: with(end{close: func(t *transport.Transport) error {
			go func() { _ = t.Close() }()
			return nil
		}})},
	}
}
