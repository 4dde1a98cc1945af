// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package transporttest_test

import (
	"context"
	"time"

	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/transport"
)

// asker is an operator with a bug.
type asker struct {
	transport.AdminClient
	ask func(a transport.AdminClient, ctx context.Context, service string, right transport.AdminRight, node string, request []byte) ([]byte, error)
}

func (a *asker) Ask(ctx context.Context, service string, right transport.AdminRight, node string, request []byte) ([]byte, error) {
	return a.ask(a.AdminClient, ctx, service, right, node, request)
}

func asking(f func(a transport.AdminClient, ctx context.Context, service string, right transport.AdminRight, node string, request []byte) ([]byte, error)) func(transport.AdminClient) transport.AdminClient {
	return func(a transport.AdminClient) transport.AdminClient { return &asker{AdminClient: a, ask: f} }
}

// taking modifies the requests that a carrier delivers.
func taking(f func(r *transport.AdminRequest)) func(func(transport.AdminRequest)) func(transport.AdminRequest) {
	return func(take func(transport.AdminRequest)) func(transport.AdminRequest) {
		return func(r transport.AdminRequest) {
			f(&r)
			take(r)
		}
	}
}

func operatorBugs() map[string]planted {
	return map[string]planted{
		"operators have the same name": {finds: []string{"OperatorNamed"}, operate: taking(func(r *transport.AdminRequest) { r.Operator = "ops" })},
		"sends each request to any node": {finds: []string{"OperatorNamed", "OperatorNobody"}, asker: asking(func(a transport.AdminClient, ctx context.Context, service string, right transport.AdminRight, _ string, request []byte) ([]byte, error) {
			return a.Ask(ctx, service, right, "", request)
		})},
		"requests use the right to read": {finds: []string{"OperatorRights"}, operate: taking(func(r *transport.AdminRequest) { r.Right = transport.AdminRead })},
		"requests use the right to act":  {finds: []string{"OperatorRights"}, operate: taking(func(r *transport.AdminRequest) { r.Right = transport.AdminAct })},
		"requests are for one service":   {finds: []string{"OperatorRights"}, operate: taking(func(r *transport.AdminRequest) { r.Service = "test" })},
		"operators share their slots":    {finds: []string{"OperatorSlots"}, hangs: true, operate: taking(func(r *transport.AdminRequest) { r.Operator = "all" })},
		"any node is always the first node": {finds: []string{"OperatorAny"}, asker: asking(func(a transport.AdminClient, ctx context.Context, service string, right transport.AdminRight, node string, request []byte) ([]byte, error) {
			if node == "" {
				node = "deaf"
			}
			return a.Ask(ctx, service, right, node, request)
		})},
		"a node serves requests to any node too early": {finds: []string{"OperatorNamedOnly"}, carrier: func() func(*inmem.Carrier) transport.Carrier {
			return func(c *inmem.Carrier) transport.Carrier { return &double{Carrier: c, eager: true} }
		}},
		"errors become answers": {finds: []string{"OperatorErrors", "OperatorBounds"}, operate: taking(func(r *transport.AdminRequest) {
			reply := r.Reply
			r.Reply = func(answer []byte, _ error) { reply(answer, nil) }
		})},
		"an operator waits forever": {finds: []string{"OperatorContext"}, hangs: true, asker: asking(func(a transport.AdminClient, ctx context.Context, service string, right transport.AdminRight, node string, request []byte) ([]byte, error) {
			return a.Ask(context.WithoutCancel(ctx), service, right, node, request)
		})},
		"Close does not wait for operators": {finds: []string{"OperatorClose"}, wrap: with(end{close: func(t *transport.Transport) error {
			time.AfterFunc(50*time.Millisecond, func() { _ = t.Close() })
			return nil
		}})},
	}
}
